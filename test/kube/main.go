package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const usage = `usage: kube etcd|kube-apiserver|controllers|kubectl ...
       kube up --dir DIR [--port N]
       kube stop|kill|start --dir DIR etcd|kube-apiserver|controllers
`

// Names of the parts that up runs, also the names by which they are called.
const (
	etcdName        = "etcd"
	apiserverName   = "kube-apiserver"
	controllersName = "controllers"
)

func main() {
	if code, ok := dispatch(filepath.Base(os.Args[0]), os.Args[1:]); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 {
		if code, ok := dispatch(os.Args[1], os.Args[2:]); ok {
			os.Exit(code)
		}
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
}

// dispatch runs the part called name and returns its exit code; ok is false if no part
// has that name.
func dispatch(name string, args []string) (code int, ok bool) {
	switch name {
	case etcdName:
		etcdmain.Main(append([]string{name}, args...))
		return 0, true
	case apiserverName:
		os.Args = append([]string{name}, args...)
		return cli.Run(app.NewAPIServerCommand()), true
	case "kubectl":
		os.Args = append([]string{name}, args...)
		return kubectl(), true
	case controllersName:
		return exitCode(name, runControllers(args)), true
	case "up":
		return exitCode(name, up(args)), true
	case "stop", "kill", "start":
		return exitCode(name, control(name, args)), true
	}
	return 0, false
}

// kubectl does what the main function of kubectl does.
func kubectl() int {
	if _, err := logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args)); err != nil {
		return exitCode("kubectl", err)
	}
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func exitCode(name string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "kube %s: %s\n", name, strings.TrimSpace(err.Error()))
	return 1
}
