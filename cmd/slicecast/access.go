package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/slicecast/slicecast/xdsserver"
)

// accessFlags say who may ask the xDS server, and for what.
type accessFlags struct {
	files    xdsserver.TLSFiles
	rules    string // file
	allowAll bool
}

func (f *accessFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.files.Cert, "xds-tls-cert", "", "PEM file with the certificate of the xDS server, read again when it changes (default: plaintext)")
	fs.StringVar(&f.files.Key, "xds-tls-key", "", "PEM file with its key")
	fs.StringVar(&f.files.ClientCA, "xds-client-ca", "", "PEM file with the authorities of client certificates, which clients must show then")
	fs.StringVar(&f.rules, "xds-access", "", "YAML file of rules that say which identities may see which namespaces and clusters, read again when it changes")
	fs.BoolVar(&f.allowAll, "xds-allow-all", false, "let every client that can connect see everything (the default on a loopback address without TLS)")
}

// access gives the rules as they are now, nil when everybody may see everything. An error says what is missing: without
// rules, only a plaintext listener on loopback serves everybody unasked.
func (f *accessFlags) access(listen string, log *slog.Logger) (func() *xdsserver.Access, error) {
	switch {
	case (f.files.Cert == "") != (f.files.Key == ""):
		return nil, usagef("--xds-tls-cert and --xds-tls-key belong together")
	case f.files.ClientCA != "" && f.files.Cert == "":
		return nil, usagef("--xds-client-ca needs --xds-tls-cert and --xds-tls-key")
	case f.rules != "" && f.allowAll:
		return nil, usagef("give only one of --xds-access and --xds-allow-all")
	case f.rules != "" && f.files.ClientCA == "":
		return nil, usagef("--xds-access needs --xds-client-ca: without certificates nobody knows who a client is")
	case f.rules == "" && !f.allowAll && !f.files.IsZero():
		return nil, usagef("with TLS, give --xds-access FILE, or --xds-allow-all to let every client see everything")
	case f.rules == "" && !f.allowAll && !onLoopback(listen):
		return nil, usagef("--xds-listen %s can be reached from outside: give TLS files and --xds-access FILE, or --xds-allow-all", listen)
	case f.rules == "":
		return nil, nil
	}
	r := &accessFile{path: f.rules, log: log}
	if err := r.read(); err != nil {
		return nil, err
	}
	return r.current, nil
}

// onLoopback reports whether an address to listen on can be reached from this machine only.
func onLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// accessFile is a file of rules. It is looked at whenever a stream begins; one that cannot be used changes nothing.
type accessFile struct {
	path string
	log  *slog.Logger

	// mu guards what follows.
	mu     sync.Mutex
	access *xdsserver.Access
	at     time.Time // modification of the file that was read last
	size   int64
}

// read takes the file.
func (r *accessFile) read() error {
	info, err := os.Stat(r.path)
	if err != nil {
		return usagef("--xds-access: %w", err)
	}
	r.at, r.size = info.ModTime(), info.Size()
	text, err := os.ReadFile(r.path)
	if err != nil {
		return usagef("--xds-access: %w", err)
	}
	access, err := parseAccess(text)
	if err != nil {
		return usagef("--xds-access %s: %w", r.path, err)
	}
	r.access = access
	return nil
}

// parseAccess reads a YAML document of rules.
func parseAccess(text []byte) (*xdsserver.Access, error) {
	var doc struct {
		Rules []struct {
			Identity   string   `json:"identity"`
			Namespaces []string `json:"namespaces"`
			Clusters   []string `json:"clusters"`
		} `json:"rules"`
	}
	if err := yaml.UnmarshalStrict(text, &doc); err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	rules := make([]xdsserver.AccessRule, 0, len(doc.Rules))
	for _, r := range doc.Rules {
		rules = append(rules, xdsserver.AccessRule{Identity: r.Identity, Namespaces: r.Namespaces, Clusters: r.Clusters})
	}
	return xdsserver.NewAccess(rules)
}

// current gives the rules of the newest file that could be used.
func (r *accessFile) current() *xdsserver.Access {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.path)
	if err == nil && info.ModTime().Equal(r.at) && info.Size() == r.size {
		return r.access
	}
	if err == nil {
		err = r.read()
	}
	if err != nil {
		r.log.Warn("changed access rules cannot be used, the earlier ones stay", "err", err)
	} else {
		r.log.Info("access rules reloaded", "file", r.path)
	}
	return r.access
}
