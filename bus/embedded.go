package bus

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	readyTimeout = 30 * time.Second // of a large store on a slow disk
	passwordFile = "bus-password"
	lockFile     = "lock"
)

// EmbeddedConfig says where an embedded server keeps its data and whether others may connect.
type EmbeddedConfig struct {
	// DataDir of the streams. Required; made when missing. One process uses it at a time.
	DataDir string
	// MaxStore and MaxMemory limit JetStream, in bytes; default 16 GiB and 256 MiB.
	MaxStore, MaxMemory int64

	// Listen is host:port for other processes; "" means none, an empty host means loopback, port 0 any free one.
	Listen string
	// User and Password of other processes. User defaults to "slicecast". Without a Password one is made and written to
	// the file bus-password in DataDir (mode 0600), and kept there.
	User, Password string
	// AllowAnonymous lets everybody in who can reach Listen.
	AllowAnonymous bool
	// CertFile and KeyFile make Listen a TLS listener; CAFile asks clients for a certificate of that authority, which
	// then takes the place of the password. The files are read again for each client, so rotation needs no restart.
	CAFile, CertFile, KeyFile string

	// Log is required.
	Log *slog.Logger
}

// Embedded is a NATS server in this process.
type Embedded struct {
	srv            *server.Server
	unlock         func()
	user, password string
}

// StartEmbedded starts a server with JetStream that syncs every write to disk. ErrLocked is returned when another
// process uses the data directory. Shutdown ends it.
func StartEmbedded(cfg EmbeddedConfig) (*Embedded, error) {
	if cfg.DataDir == "" {
		return nil, errors.New("bus: an embedded server needs a data directory")
	}
	if cfg.Log == nil {
		return nil, errors.New("bus: no logger")
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	unlock, err := lockDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	e := &Embedded{unlock: unlock}
	if err := e.start(cfg); err != nil {
		unlock()
		return nil, err
	}
	return e, nil
}

func (e *Embedded) start(cfg EmbeddedConfig) error {
	o, err := serverOptions(cfg)
	if err != nil {
		return err
	}
	if cfg.Listen != "" {
		if err := e.guard(cfg, o); err != nil {
			return err
		}
	}
	if e.srv, err = server.NewServer(o); err != nil {
		return fmt.Errorf("make embedded bus: %w", err)
	}
	e.srv.SetLoggerV2(serverLog{cfg.Log}, false, false, false)
	e.srv.Start()
	if !e.srv.ReadyForConnections(readyTimeout) || !e.srv.JetStreamEnabled() {
		e.srv.Shutdown()
		e.srv.WaitForShutdown()
		return fmt.Errorf("embedded bus in %s did not start; its log says why", cfg.DataDir)
	}
	return nil
}

// serverOptions are those of a server without a listener.
func serverOptions(cfg EmbeddedConfig) (*server.Options, error) {
	o := &server.Options{
		ServerName:         "slicecast",
		DontListen:         true,
		NoSigs:             true,
		JetStream:          true,
		StoreDir:           cfg.DataDir,
		SyncAlways:         true,
		JetStreamMaxMemory: cfg.MaxMemory,
		JetStreamMaxStore:  cfg.MaxStore,
		JetStreamLimits:    server.JSLimitOpts{DefaultMaxConsumers: maxConsumers},
		MaxPayload:         maxMessage,
	}
	if o.JetStreamMaxMemory == 0 {
		o.JetStreamMaxMemory = 256 << 20
	}
	if o.JetStreamMaxStore == 0 {
		o.JetStreamMaxStore = 16 << 30
	}
	if cfg.Listen == "" {
		return o, nil
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("bus listener %q: %w", cfg.Listen, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("bus listener %q: port: %w", cfg.Listen, err)
	}
	o.DontListen, o.Host, o.Port = false, host, int(number)
	if host == "" {
		o.Host = "127.0.0.1"
	}
	if number == 0 {
		o.Port = server.RANDOM_PORT
	}
	return o, nil
}

// guard says who may connect to the listener.
func (e *Embedded) guard(cfg EmbeddedConfig, o *server.Options) error {
	if (cfg.CertFile == "") != (cfg.KeyFile == "") || cfg.CAFile != "" && cfg.CertFile == "" {
		return errors.New("bus listener: a certificate and its key belong together, and an authority of clients needs both")
	}
	if cfg.CertFile != "" {
		f := certFiles{ca: cfg.CAFile, cert: cfg.CertFile, key: cfg.KeyFile, log: cfg.Log}
		config, err := f.load()
		if err != nil {
			return fmt.Errorf("bus listener: %w", err)
		}
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.newest(), nil }
		o.TLSConfig, o.TLSVerify = config, cfg.CAFile != ""
		o.TLSTimeout = 5
	}
	if cfg.CAFile != "" && cfg.Password == "" {
		return nil
	}
	if cfg.AllowAnonymous {
		cfg.Log.Warn("bus listener lets everybody in", "listen", cfg.Listen)
		return nil
	}
	e.user, e.password = cfg.User, cfg.Password
	if e.user == "" {
		e.user = "slicecast"
	}
	if e.password == "" {
		var err error
		if e.password, err = keptPassword(filepath.Join(cfg.DataDir, passwordFile)); err != nil {
			return err
		}
		cfg.Log.Info("bus listener asks for a password", "user", e.user, "file", filepath.Join(cfg.DataDir, passwordFile))
	}
	o.Username, o.Password = e.user, e.password
	return nil
}

// keptPassword reads the password of an earlier start, or makes one.
func keptPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(text)) != "" {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read bus password: %w", err)
	}
	password := rand.Text()
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep bus password: %w", err)
	}
	return password, nil
}

// InProcessConn is a connection to the server without a socket; the client library calls it.
func (e *Embedded) InProcessConn() (net.Conn, error) { return e.srv.InProcessConn() }

// URL for other processes, "" when the server does not listen.
func (e *Embedded) URL() string {
	if e.srv.Addr() == nil {
		return ""
	}
	return e.srv.ClientURL()
}

// login is what clients of this process show the server.
func (e *Embedded) login() (user, password string) { return e.user, e.password }

// Shutdown ends the server after all is on disk, and frees the data directory. Clients are closed first.
func (e *Embedded) Shutdown() {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	e.unlock()
}
