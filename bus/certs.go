package bus

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// certFiles are the PEM files of a TLS listener. They are read for each client: connections are few and last.
type certFiles struct {
	ca, cert, key string
	log           *slog.Logger

	mu   sync.Mutex // guards what follows
	good *tls.Config
	bad  bool // the files cannot be read, and that has been said
}

// load reads the files.
func (f *certFiles) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("read authority of clients: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read authority of clients: no certificate in %s", f.ca)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	f.mu.Lock()
	f.good, f.bad = config, false
	f.mu.Unlock()
	return config.Clone(), nil
}

// newest is what the files say now, or said when they were last whole: a rotation may be seen half done.
func (f *certFiles) newest() *tls.Config {
	config, err := f.load()
	if err == nil {
		return config
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.bad {
		f.bad = true
		f.log.Error("certificate of the bus listener not read, the last one serves", "err", err)
	}
	return f.good.Clone()
}
