package rig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startWithin bounds the start of a server.
const startWithin = time.Minute

// Server is a nats-server in this process with a listener on loopback and its store on disk; its port stays over restarts.
type Server struct {
	options server.Options
	copies  string // where copies of the store go
	srv     *server.Server
}

// NewServer starts a server whose data is below dir.
func NewServer(dir string, change ...func(*server.Options)) (*Server, error) {
	s := &Server{copies: filepath.Join(dir, "copies"), options: server.Options{
		ServerName: "bus", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: filepath.Join(dir, "store"), JetStreamMaxStore: 16 << 30, JetStreamMaxMemory: 256 << 20,
	}}
	for _, c := range change {
		c(&s.options)
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	s.options.Port = s.srv.Addr().(*net.TCPAddr).Port
	return s, nil
}

// URL for clients.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.options.Port) }

// URLs is URL as a list.
func (s *Server) URLs() []string { return []string{s.URL()} }

// Start starts a server that was stopped.
func (s *Server) Start() error {
	o := s.options
	srv, err := server.NewServer(&o)
	if err != nil {
		return fmt.Errorf("make server: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(startWithin) {
		return errors.New("the server does not start")
	}
	s.srv = srv
	return nil
}

// Stop stops the server after all is in its store.
func (s *Server) Stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// Restart stops the server and starts it again with its store.
func (s *Server) Restart() error {
	s.Stop()
	return s.Start()
}

// Wipe is Restart without the store.
func (s *Server) Wipe() error {
	s.Stop()
	if err := os.RemoveAll(s.options.StoreDir); err != nil {
		return fmt.Errorf("wipe the store: %w", err)
	}
	return s.Start()
}

// Copy is Restart, with a copy of the store made in between.
func (s *Server) Copy() error {
	s.Stop()
	if err := os.RemoveAll(s.copies); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	if err := os.CopyFS(s.copies, os.DirFS(s.options.StoreDir)); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	return s.Start()
}

// RollBack is Restart with the store as it was at the last Copy.
func (s *Server) RollBack() error {
	s.Stop()
	if err := os.RemoveAll(s.options.StoreDir); err != nil {
		return fmt.Errorf("roll the store back: %w", err)
	}
	if err := os.CopyFS(s.options.StoreDir, os.DirFS(s.copies)); err != nil {
		return fmt.Errorf("roll the store back: %w", err)
	}
	return s.Start()
}

// Close ends it for good.
func (s *Server) Close() { s.Stop() }
