package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// settingsCommand is a command with one flag of each shape, whose sibling has a flag of its own.
func settingsCommand(t *testing.T) (root, cmd *cobra.Command) {
	t.Helper()
	root = &cobra.Command{Use: "slicecast"}
	addCommonFlags(root)
	cmd = &cobra.Command{Use: "role", RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.Flags().String("listen", "default", "")
	cmd.Flags().Duration("wait", 0, "")
	cmd.Flags().StringArray("cluster", nil, "")
	cmd.Flags().StringSlice("namespaces", nil, "")
	cmd.Flags().Int("most", 0, "")
	sibling := &cobra.Command{Use: "other", RunE: func(*cobra.Command, []string) error { return nil }}
	sibling.Flags().Bool("elsewhere", false, "")
	root.AddCommand(cmd, sibling)
	return root, cmd
}

func settle(t *testing.T, args []string, env map[string]string) (map[string]string, error) {
	t.Helper()
	root, cmd := settingsCommand(t)
	var failed error
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		failed = applySettings(cmd, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		return nil
	}
	root.SetArgs(append([]string{"role"}, args...))
	if err := root.Execute(); err != nil {
		t.Fatalf("execute: %v", err)
	}
	got := map[string]string{}
	for _, name := range []string{"listen", "wait", "cluster", "namespaces", "most"} {
		got[name] = cmd.Flags().Lookup(name).Value.String()
	}
	return got, failed
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	file := writeFile(t, "listen: from-file\nwait: 3s\ncluster: [a=dir:/a, b=dir:/b]\nelsewhere: true\n")
	got, err := settle(t, []string{"--config", file, "--listen", "from-flag"},
		map[string]string{"SLICECAST_LISTEN": "from-env", "SLICECAST_WAIT": "2s"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"listen": "from-flag", "wait": "2s", "cluster": "[a=dir:/a,b=dir:/b]", "namespaces": "[]", "most": "0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestARepeatableFlagTakesWordsFromItsVariable(t *testing.T) {
	got, err := settle(t, nil, map[string]string{"SLICECAST_CLUSTER": "a=dir:/a,region=x b=dir:/b"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "[\"a=dir:/a,region=x\",b=dir:/b]"; got["cluster"] != want {
		t.Errorf("cluster: got %s, want %s", got["cluster"], want)
	}
}

func TestAListWithCommasIsThatListWhereverItStands(t *testing.T) {
	const want = "[shop,front]"
	for place, given := range map[string]struct {
		args []string
		env  map[string]string
	}{
		"flag":               {args: []string{"--namespaces", "shop,front"}},
		"variable":           {env: map[string]string{"SLICECAST_NAMESPACES": "shop,front"}},
		"words of variable":  {env: map[string]string{"SLICECAST_NAMESPACES": "shop front"}},
		"comma and space":    {env: map[string]string{"SLICECAST_NAMESPACES": "shop, front"}},
		"text of a file":     {args: []string{"--config", writeFile(t, "namespaces: shop,front\n")}},
		"sequence of a file": {args: []string{"--config", writeFile(t, "namespaces: [shop, front]\n")}},
	} {
		got, err := settle(t, given.args, given.env)
		if err != nil || got["namespaces"] != want {
			t.Errorf("%s: got %s (%v), want %s", place, got["namespaces"], err, want)
		}
	}
}

func TestABigNumberOfAFileIsThatNumber(t *testing.T) {
	got, err := settle(t, []string{"--config", writeFile(t, "most: 10000000\n")}, nil)
	if err != nil || got["most"] != "10000000" {
		t.Errorf("got %s (%v), want 10000000", got["most"], err)
	}
}

func TestBadSettingsAreNamedWithTheirPlace(t *testing.T) {
	for name, c := range map[string]struct {
		file, env string
		want      []string
	}{
		"unknown key":        {file: "lissten: x\n", want: []string{"config.yaml", `"lissten"`}},
		"bad value":          {file: "wait: soon\n", want: []string{"config.yaml", "wait", "soon"}},
		"not a scalar":       {file: "listen: {a: b}\n", want: []string{"config.yaml", "listen"}},
		"not YAML":           {file: "a: b: c\n", want: []string{"config.yaml"}},
		"twice":              {file: "listen: a\nlisten: b\n", want: []string{"config.yaml", "listen"}},
		"variable":           {env: "soon", want: []string{"SLICECAST_WAIT", "soon"}},
		"config in a config": {file: "config: other.yaml\n", want: []string{"config.yaml", `"config"`}},
	} {
		t.Run(name, func(t *testing.T) {
			args, env := []string(nil), map[string]string{}
			if c.file != "" {
				args = []string{"--config", writeFile(t, c.file)}
			}
			if c.env != "" {
				env["SLICECAST_WAIT"] = c.env
			}
			_, err := settle(t, args, env)
			if err == nil {
				t.Fatal("got no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		})
	}
}

func TestUsageErrorsExitWithTwoAndOneLine(t *testing.T) {
	for _, args := range [][]string{
		{"--nonsense"}, {"standalone", "--nonsense"}, {"nonsense"}, {"standalone", "extra"},
		{"standalone", "--cluster", "x"}, {"standalone", "--config", "/does/not/exist"},
		{"bootstrap", "envoy", "--xds", "nowhere"}, {"events", "-o", "xml"},
	} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, &out, &errs); code != exitUsage {
			t.Errorf("%q: exit code %d, want %d (%s)", args, code, exitUsage, errs.String())
		}
		if lines := strings.Count(errs.String(), "\n"); lines != 2 {
			t.Errorf("%q: want the error and where to look, got %q", args, errs.String())
		}
		if out.Len() != 0 {
			t.Errorf("%q: wrote to stdout: %q", args, out.String())
		}
	}
}
