package bus_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicecast/slicecast/bus"
)

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// refused checks that b, which cannot connect, has said why in one line and no more.
func refused(t *testing.T, b *bus.Bus, reg *prometheus.Registry, text *logSink, kind, line, why string) {
	t.Helper()
	tries := func() float64 { return samples(t, reg)["slicecast_bus_connect_errors_total{"+kind+"}"] }
	eventually(t, "three tries that fail as "+kind, func() bool { return tries() >= 3 })
	if b.Connected() {
		t.Error("connected")
	}
	if lines := strings.Count(text.String(), "\n"); lines != 1 || text.count(line) != 1 || text.count(why) != 1 {
		t.Errorf("the log is %q, want one line with %q and %q", text, line, why)
	}
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
}

func TestAWrongPasswordIsSaidOnceAndARightOneIsTaken(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *server.Options) { o.Username, o.Password = "xds", "right" })
	log, text := logger()
	reg := prometheus.NewRegistry()
	file := filepath.Join(t.TempDir(), "password")
	writeText(t, file, "wrong")
	b := connect(t, bus.Config{URLs: []string{s.url}, User: "xds", PasswordFile: file, Log: log, Metrics: reg})
	refused(t, b, reg, text, "refused", "bus refuses this client", `as="user xds"`)
	writeText(t, file, "right")
	eventually(t, "a connection with the right password", b.Connected)
	// Another one later is said again.
	writeText(t, file, "wrong")
	must(t, b.Reconnect())
	eventually(t, "the second line", func() bool { return text.count("bus refuses this client") == 2 })
}

func TestAnExpiredCertificateIsSaidOnceAndARenewedOneIsTaken(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "one")
	good := ca.issue(t, files(t), time.Now().Add(time.Hour))
	e := embedded(t, bus.EmbeddedConfig{Listen: ":0", CertFile: good.cert, KeyFile: good.key, CAFile: good.ca})
	log, text := logger()
	reg := prometheus.NewRegistry()
	own := ca.issue(t, files(t), time.Now().Add(-time.Minute))
	b := connect(t, bus.Config{URLs: []string{e.URL()}, CAFile: own.ca, CertFile: own.cert, KeyFile: own.key, Log: log, Metrics: reg})
	refused(t, b, reg, text, "tls", "bus not reached over TLS", "which expired at")
	ca.issue(t, own, time.Now().Add(time.Hour))
	eventually(t, "a connection with the new certificate", b.Connected)
}

func TestAnExpiredCertificateOfTheServerIsSaidOnceAndARenewedOneIsTaken(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "one")
	server := ca.issue(t, files(t), time.Now().Add(-time.Minute))
	e := embedded(t, bus.EmbeddedConfig{Listen: ":0", CertFile: server.cert, KeyFile: server.key, AllowAnonymous: true})
	log, text := logger()
	reg := prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: []string{e.URL()}, CAFile: server.ca, Log: log, Metrics: reg})
	refused(t, b, reg, text, "tls", "bus not reached over TLS", "certificate has expired")
	ca.issue(t, server, time.Now().Add(time.Hour))
	eventually(t, "a connection to the new certificate", b.Connected)
}

func TestCertificatesOfAnotherAuthorityAreTakenWithoutARestart(t *testing.T) {
	t.Parallel()
	one, two := newAuthority(t, "one"), newAuthority(t, "two")
	server, client := one.issue(t, files(t), time.Now().Add(time.Hour)), one.issue(t, files(t), time.Now().Add(time.Hour))
	e := embedded(t, bus.EmbeddedConfig{Listen: ":0", CertFile: server.cert, KeyFile: server.key, CAFile: server.ca})
	cfg := bus.Config{URLs: []string{e.URL()}, CAFile: client.ca, CertFile: client.cert, KeyFile: client.key}
	b := connect(t, cfg)
	old := one.issue(t, files(t), time.Now().Add(time.Hour))
	if !b.Connected() {
		t.Fatal("not connected")
	}
	must(t, os.WriteFile(server.cert, []byte("half writ"), 0o600))
	if !connect(t, cfg).Connected() {
		t.Error("not connected while the files of the server are not whole")
	}
	two.issue(t, server, time.Now().Add(time.Hour))
	two.issue(t, client, time.Now().Add(time.Hour))
	must(t, b.Reconnect())
	f := followAll(t, b)
	f.write(t, 1)
	f.settled(t)
	left := connect(t, bus.Config{URLs: []string{e.URL()}, CAFile: client.ca, CertFile: old.cert, KeyFile: old.key})
	if left.Connected() {
		t.Error("connected with a certificate of the old authority")
	}
}

func TestAnotherNkeyIsTakenWithoutARestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seed")
	seed := func() string {
		pair, err := nkeys.CreateUser()
		must(t, err)
		text, err := pair.Seed()
		must(t, err)
		writeText(t, file, string(text))
		public, err := pair.PublicKey()
		must(t, err)
		return public
	}
	s := startServer(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: seed()}} })
	log, text := logger()
	b := connect(t, bus.Config{URLs: []string{s.url}, NkeyFile: file, Log: log})
	if !b.Connected() {
		t.Fatal("not connected with the first seed")
	}
	s.stop()
	s.options.Nkeys = []*server.NkeyUser{{Nkey: seed()}}
	s.start(t)
	eventually(t, "a connection with the second seed", b.Connected)
	if text.count("bus refuses this client") != 0 {
		t.Errorf("it was refused meanwhile:\n%s", text)
	}
}

// operator is a server whose clients show credentials.
type operator struct {
	signer, account nkeys.KeyPair
	claims          *jwt.AccountClaims
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	signer, err := nkeys.CreateOperator()
	must(t, err)
	account, err := nkeys.CreateAccount()
	must(t, err)
	public, err := account.PublicKey()
	must(t, err)
	o := &operator{signer, account, jwt.NewAccountClaims(public)}
	o.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	return o
}

// set makes so the server of an operator.
func (o *operator) set(t *testing.T, so *server.Options) {
	t.Helper()
	public, err := o.signer.PublicKey()
	must(t, err)
	system, err := nkeys.CreateAccount()
	must(t, err)
	so.SystemAccount, err = system.PublicKey()
	must(t, err)
	claims := jwt.NewOperatorClaims(public)
	claims.SystemAccount = so.SystemAccount
	so.TrustedOperators = []*jwt.OperatorClaims{claims}
	resolver := &server.MemAccResolver{}
	for _, c := range [...]*jwt.AccountClaims{o.claims, jwt.NewAccountClaims(so.SystemAccount)} {
		token, err := c.Encode(o.signer)
		must(t, err)
		must(t, resolver.Store(c.Subject, token))
	}
	so.AccountResolver = resolver
}

// credentials writes those of a new user to file, and gives its public key.
func (o *operator) credentials(t *testing.T, file string, until time.Time) string {
	t.Helper()
	user, err := nkeys.CreateUser()
	must(t, err)
	public, err := user.PublicKey()
	must(t, err)
	claims := jwt.NewUserClaims(public)
	claims.Expires = until.Unix()
	token, err := claims.Encode(o.account)
	must(t, err)
	seed, err := user.Seed()
	must(t, err)
	text, err := jwt.FormatUserConfig(token, seed)
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	return public
}

func TestOtherCredentialsAreTakenWithoutARestart(t *testing.T) {
	t.Parallel()
	o, file := newOperator(t), filepath.Join(t.TempDir(), "user.creds")
	old := o.credentials(t, file, time.Now().Add(time.Hour))
	s := startServer(t, func(so *server.Options) { o.set(t, so) })
	b := connect(t, bus.Config{URLs: []string{s.url}, CredsFile: file})
	f := followAll(t, b)
	f.write(t, 1)
	s.stop()
	o.claims.Revoke(old)
	o.set(t, &s.options)
	o.credentials(t, file, time.Now().Add(time.Hour))
	s.start(t)
	f.write(t, 1)
	f.settled(t)
}

func TestExpiredCredentialsAreSaidOnceAndRenewedOnesAreTaken(t *testing.T) {
	t.Parallel()
	o, file := newOperator(t), filepath.Join(t.TempDir(), "user.creds")
	s := startServer(t, func(so *server.Options) { o.set(t, so) })
	o.credentials(t, file, time.Now().Add(-time.Minute))
	log, text := logger()
	reg := prometheus.NewRegistry()
	b := connect(t, bus.Config{URLs: []string{s.url}, CredsFile: file, Log: log, Metrics: reg})
	refused(t, b, reg, text, "refused", "bus refuses this client", fmt.Sprintf("as=%q", "credentials "+file))
	o.credentials(t, file, time.Now().Add(time.Hour))
	eventually(t, "a connection with the new credentials", b.Connected)
}
