package xdsserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// TLSFiles name the PEM files of the listener. Without a certificate it speaks plaintext.
type TLSFiles struct {
	Cert, Key string // of the server
	ClientCA  string // clients must show a certificate of it; empty: clients need none
}

// IsZero reports whether the listener speaks plaintext.
func (f TLSFiles) IsZero() bool { return f == TLSFiles{} }

func (f TLSFiles) valid() error {
	switch {
	case f.IsZero():
		return nil
	case f.Cert == "" || f.Key == "":
		return errors.New("TLS: a certificate and its key belong together")
	}
	return nil
}

// load makes the settings of one generation of the files.
func (f TLSFiles) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	if f.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("TLS client CA: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("TLS client CA %s: no PEM certificate in it", f.ClientCA)
	}
	return c, nil
}

// stamp tells one generation of the files from another: it follows the links by which mounted secrets are replaced.
func (f TLSFiles) stamp() (s tlsStamp, err error) {
	for i, name := range [...]string{f.Cert, f.Key, f.ClientCA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return s, fmt.Errorf("TLS: %w", err)
		}
		s[i] = fileStamp{info.ModTime(), info.Size()}
	}
	return s, nil
}

type tlsStamp [3]fileStamp

type fileStamp struct {
	at   time.Time
	size int64
}

// liveTLS serves the newest files: each handshake looks whether they have changed, so nothing runs in the background
// and a rotated certificate is in use at the next connection. Files that cannot be used change nothing.
type liveTLS struct {
	files   TLSFiles
	log     *slog.Logger
	reloads *prometheus.CounterVec // label "outcome"

	// mu guards what follows.
	mu     sync.Mutex
	config *tls.Config
	stamp  tlsStamp
	bad    string // why the last change was not taken, empty when it was
}

// newLiveTLS loads the files for the first time.
func newLiveTLS(files TLSFiles, log *slog.Logger, reloads *prometheus.CounterVec) (*liveTLS, error) {
	l := &liveTLS{files: files, log: log, reloads: reloads}
	var err error
	if l.stamp, err = files.stamp(); err != nil {
		return nil, err
	}
	if l.config, err = files.load(); err != nil {
		return nil, err
	}
	return l, nil
}

// serverConfig gives the settings for a listener.
func (l *liveTLS) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return l.current(), nil },
	}
}

// current gives the settings of the newest files that can be used.
func (l *liveTLS) current() *tls.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	stamp, err := l.files.stamp()
	if err == nil && stamp == l.stamp && l.bad == "" {
		return l.config
	}
	var config *tls.Config
	if err == nil {
		// Certificate and key are two files: a pair that does not fit yet is tried again at the next handshake.
		config, err = l.files.load()
	}
	if err != nil {
		if text := err.Error(); text != l.bad {
			l.bad = text
			l.reloads.WithLabelValues("failed").Inc()
			l.log.Warn("changed TLS files cannot be used, the earlier ones stay", "err", err)
		}
		return l.config
	}
	if stamp != l.stamp {
		l.reloads.WithLabelValues("done").Inc()
		l.log.Info("TLS files reloaded")
	}
	l.config, l.stamp, l.bad = config, stamp, ""
	return l.config
}

// identitiesOf lists what a client's certificate says who it is: its URI, DNS, e-mail and IP names.
func identitiesOf(cert *x509.Certificate) []string {
	ids := make([]string, 0, len(cert.URIs)+len(cert.DNSNames)+len(cert.EmailAddresses)+len(cert.IPAddresses))
	for _, u := range cert.URIs {
		ids = append(ids, u.String())
	}
	ids = append(ids, cert.DNSNames...)
	ids = append(ids, cert.EmailAddresses...)
	for _, ip := range cert.IPAddresses {
		ids = append(ids, ip.String())
	}
	return ids
}

// identitiesFrom lists who the client of a connection is; nobody without a verified certificate.
func identitiesFrom(auth credentials.AuthInfo) []string {
	info, ok := auth.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return identitiesOf(info.State.PeerCertificates[0])
}
