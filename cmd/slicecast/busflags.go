package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicecast/slicecast/bus"
)

// clientPatience is how long a command that reads the bus waits for the server.
const clientPatience = 5 * time.Second

// busFlags say how to reach NATS.
type busFlags struct {
	urls           string
	creds, nkey    string
	user, password string // password is the path of a file
	ca, cert, key  string
	inbox          string
	replicas       int
}

func (b *busFlags) add(f *pflag.FlagSet) {
	f.StringVar(&b.urls, "nats", "nats://127.0.0.1:4222", "URL[,URL] of the NATS servers")
	f.StringVar(&b.creds, "nats-creds", "", "NATS credentials file")
	f.StringVar(&b.nkey, "nats-nkey", "", "NATS nkey seed file")
	f.StringVar(&b.user, "nats-user", "", "NATS user (default slicecast, with --nats-password-file)")
	f.StringVar(&b.password, "nats-password-file", "", "file with the password of --nats-user; a standalone writes its own to DATA-DIR/bus-password")
	f.StringVar(&b.ca, "nats-ca", "", "PEM file of the authority that the NATS servers' certificates are checked against")
	f.StringVar(&b.cert, "nats-cert", "", "PEM file of this client's certificate")
	f.StringVar(&b.key, "nats-key", "", "PEM file of the key of --nats-cert")
	f.StringVar(&b.inbox, "nats-inbox-prefix", "", "prefix of the subjects of answers, where permissions on NATS ask for one (default _INBOX)")
}

// config gives the bus configuration of a client of that name.
func (b *busFlags) config(name string, t telemetry) (bus.Config, error) {
	cfg := bus.Config{
		Name: name, URLs: strings.Split(b.urls, ","), CredsFile: b.creds, NkeyFile: b.nkey, User: b.user, PasswordFile: b.password,
		CAFile: b.ca, CertFile: b.cert, KeyFile: b.key, InboxPrefix: b.inbox, Replicas: b.replicas, Log: t.log, Metrics: t.registry,
	}
	if b.password != "" && b.user == "" {
		cfg.User = "slicecast"
	}
	if b.user != "" && b.password == "" {
		return cfg, usagef("--nats-user needs --nats-password-file")
	}
	return cfg, nil
}

// connectClient is the connection of a command that reads the bus: it must be there soon.
func (b *busFlags) connectClient(cmd *cobra.Command) (*bus.Bus, error) {
	if level := cmd.Flag("log-level"); !level.Changed {
		_ = level.Value.Set("warn") // a command's own output is what its user wants to see
	}
	log, err := newLogger(cmd)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only a name for people
	cfg, err := b.config(fmt.Sprintf("cli/%s/%d", host, os.Getpid()), telemetry{registry: prometheus.NewRegistry(), log: log})
	if err != nil {
		return nil, err
	}
	cfg.Proxies = true
	conn, err := bus.Connect(cmd.Context(), cfg)
	if err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(cmd.Context(), clientPatience)
	defer cancel()
	if _, err := conn.States().Last(patience); errors.Is(err, bus.ErrNotConnected) || errors.Is(err, context.DeadlineExceeded) {
		conn.Close()
		return nil, fmt.Errorf("no NATS server answers at %s", b.urls)
	}
	return conn, nil
}

// replicaName names this process among the replicas of a role.
func replicaName(role string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%s/%d", role, host, os.Getpid())
}

// embeddedFlags say where a standalone keeps its bus and who may connect.
type embeddedFlags struct {
	dataDir       string
	listen        string
	anonymous     bool
	ca, cert, key string
}

func (e *embeddedFlags) add(f *pflag.FlagSet) {
	f.StringVar(&e.dataDir, "data-dir", defaultDataDir(), "folder of the embedded bus; one process at a time")
	f.StringVar(&e.listen, "bus-listen", "", "HOST:PORT where the embedded bus lets others subscribe (default: nowhere)")
	f.BoolVar(&e.anonymous, "bus-allow-anonymous", false, "let everybody in who reaches --bus-listen (default: user slicecast, password in DATA-DIR/bus-password)")
	f.StringVar(&e.cert, "bus-cert", "", "PEM file of the certificate of --bus-listen")
	f.StringVar(&e.key, "bus-key", "", "PEM file of the key of --bus-cert")
	f.StringVar(&e.ca, "bus-client-ca", "", "PEM file of the authority that clients of --bus-listen need a certificate of")
}

func (e *embeddedFlags) start(log *slog.Logger) (*bus.Embedded, error) {
	return bus.StartEmbedded(bus.EmbeddedConfig{
		DataDir: e.dataDir, Listen: e.listen, AllowAnonymous: e.anonymous,
		CAFile: e.ca, CertFile: e.cert, KeyFile: e.key, Log: log,
	})
}

// defaultDataDir is the user's folder for data of programs.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "slicecast")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "share", "slicecast")
	}
	return "slicecast-data"
}
