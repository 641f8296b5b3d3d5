package bus

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Why no connection can be made: the label values of a metric.
const (
	troubleRefused     = "refused"     // the server does not take this client
	troubleTLS         = "tls"         // one side does not take the other's certificate, or wants none
	troubleUnreachable = "unreachable" // no server answers, or another error
)

// trouble counts an error of a connection that is being made. The first one of its kind since the last connection is
// logged: what an operator has to do about it is in that line, and it comes again every second.
func (b *Bus) trouble(err error) {
	if errors.Is(err, errNewSeed) {
		return
	}
	kind := troubleOf(err)
	b.metrics.unreached.WithLabelValues(kind).Inc()
	b.mu.Lock()
	first := !b.troubles[kind]
	b.troubles[kind] = true
	b.mu.Unlock()
	if !first {
		return
	}
	log := b.log.With(slog.String("url", redacted(b.cfg.URLs)), slog.Any("err", err))
	switch kind {
	case troubleRefused:
		log.Error("bus refuses this client, trying on", "as", b.cfg.who())
	case troubleTLS:
		log.Error("bus not reached over TLS, trying on", "as", b.cfg.who())
	default:
		log.Warn("bus not reached, trying on")
	}
}

// reported takes an error that the library reports beside all calls.
func (b *Bus) reported(sub *nats.Subscription, err error) {
	violation := errors.Is(err, nats.ErrPermissionViolation)
	if sub == nil && !violation && !b.Connected() {
		b.trouble(err)
		return
	}
	b.metrics.reported.WithLabelValues(reportOf(err)).Inc()
	text := err.Error()
	if violation {
		if b.link.refuse(text, cmp.Or(b.cfg.InboxPrefix, "_INBOX")) {
			return // The call that it ends says it.
		}
		text = outline(text)
	}
	if b.first(text) {
		b.log.Warn("bus reports an error", "err", err)
	}
}

// outline is the part of a permission error that is equal for all subjects of a kind: names of readers are made up, and
// every slice has its own subject.
func outline(text string) string {
	before, subject, quoted := strings.Cut(text, `"`)
	if !quoted {
		return text
	}
	tokens, kept := strings.Split(subject, "."), 3
	if tokens[0] == "$JS" {
		kept = 5 // up to the stream
	}
	return before + strings.Join(tokens[:min(len(tokens), kept)], ".")
}

// reached forgets the troubles before a connection.
func (b *Bus) reached() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.troubles)
}

func troubleOf(err error) string {
	for _, is := range [...]error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, is) {
			return troubleRefused
		}
	}
	// What the other side says of a certificate has no type.
	if errors.Is(err, nats.ErrTLS) || errors.Is(err, nats.ErrSecureConnRequired) || errors.Is(err, nats.ErrSecureConnWanted) || strings.Contains(err.Error(), "tls: ") {
		return troubleTLS
	}
	return troubleUnreachable
}

// who is what the client shows the server, for the log.
func (c *Config) who() string {
	switch {
	case c.CredsFile != "":
		return "credentials " + c.CredsFile
	case c.NkeyFile != "":
		return "nkey " + c.NkeyFile
	case c.User != "":
		return "user " + c.User
	case c.CertFile != "":
		return "certificate " + c.CertFile + expiry(c.CertFile, time.Now())
	default:
		return "nobody"
	}
}

// expiry says that the certificate in file has expired. A server that refuses one closes the connection, and often only that
// is seen of it.
func expiry(file string, now time.Time) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ", which cannot be read"
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return ", which is no PEM file"
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return ", which cannot be read"
	case now.After(cert.NotAfter):
		return ", which expired at " + cert.NotAfter.UTC().Format(time.RFC3339)
	default:
		return ""
	}
}
