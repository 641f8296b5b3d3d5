package xdsserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// authority is a certificate authority of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue makes a certificate for 127.0.0.1 and, if given, a SPIFFE ID, and gives it and its key as PEM.
func (a authority) issue(t *testing.T, serial int64, spiffe string, until time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if spiffe != "" {
		u, err := url.Parse(spiffe)
		must(t, err)
		tmpl.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// tlsFolder holds the files of a listener.
func tlsFolder(t *testing.T) TLSFiles {
	t.Helper()
	dir := t.TempDir()
	return TLSFiles{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "ca.crt")}
}

// put replaces a file as a mounted secret is: another file under the same name. Its time differs from that of before.
func put(t *testing.T, name string, content []byte) {
	t.Helper()
	tmp := name + ".new"
	must(t, os.WriteFile(tmp, content, 0o600))
	if info, err := os.Stat(name); err == nil {
		later := info.ModTime().Add(time.Second)
		must(t, os.Chtimes(tmp, later, later))
	}
	must(t, os.Rename(tmp, name))
}

func reloadCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "reloads"}, []string{"outcome"})
}

// handshake connects with a client certificate and gives the serial number of the server's, or the error of either side.
func handshake(t *testing.T, l *liveTLS, roots *x509.CertPool, cert, key []byte) (serial int64, err error) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", l.serverConfig())
	must(t, err)
	defer func() { must(t, listener.Close()) }()
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = conn.Write([]byte("x")) // which makes the handshake first
			_ = conn.Close()
		}
		ended <- err
	}()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}}
	if cert != nil {
		pair, err := tls.X509KeyPair(cert, key)
		must(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		served := <-ended
		return 0, errors.Join(err, served)
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Read(make([]byte, 1)) // a client learns that it is refused when it reads
	if served := <-ended; err != nil || served != nil {
		return 0, errors.Join(err, served)
	}
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestARotatedCertificateAndClientCAAreInUseAtTheNextConnection(t *testing.T) {
	f, one, two := tlsFolder(t), newAuthority(t, "one"), newAuthority(t, "two")
	roots := x509.NewCertPool()
	roots.AddCert(one.cert)
	hour := time.Now().Add(time.Hour)
	cert, key := one.issue(t, 11, "", hour)
	put(t, f.Cert, cert)
	put(t, f.Key, key)
	put(t, f.ClientCA, one.pem)
	reloads := reloadCounter()
	l, err := newLiveTLS(f, slog.New(slog.DiscardHandler), reloads)
	must(t, err)
	oneCert, oneKey := one.issue(t, 1, "spiffe://example.org/a", hour)
	twoCert, twoKey := two.issue(t, 2, "spiffe://example.org/a", hour)
	if got, err := handshake(t, l, roots, oneCert, oneKey); err != nil || got != 11 {
		t.Fatalf("before the rotation: got serial %d, error %v, want 11", got, err)
	}
	if _, err := handshake(t, l, roots, twoCert, twoKey); err == nil {
		t.Fatal("a client of another authority was let in")
	}

	// A certificate whose key is not there yet changes nothing; with its key it is taken.
	cert, key = one.issue(t, 12, "", hour)
	put(t, f.Cert, cert)
	if got, err := handshake(t, l, roots, oneCert, oneKey); err != nil || got != 11 {
		t.Fatalf("half rotated: got serial %d, error %v, want 11", got, err)
	}
	put(t, f.Key, key)
	put(t, f.ClientCA, two.pem)
	if got, err := handshake(t, l, roots, twoCert, twoKey); err != nil || got != 12 {
		t.Fatalf("after the rotation: got serial %d, error %v, want 12", got, err)
	}
	if _, err := handshake(t, l, roots, oneCert, oneKey); err == nil {
		t.Fatal("a client of the authority of before was let in")
	}
	if done, failed := testutil.ToFloat64(reloads.WithLabelValues("done")), testutil.ToFloat64(reloads.WithLabelValues("failed")); done != 1 || failed != 1 {
		t.Errorf("got %v reloads done and %v failed, want 1 and 1", done, failed)
	}
}

func TestAClientWithoutAGoodCertificateIsNotLetIn(t *testing.T) {
	f, own := tlsFolder(t), newAuthority(t, "own")
	roots := x509.NewCertPool()
	roots.AddCert(own.cert)
	cert, key := own.issue(t, 11, "", time.Now().Add(time.Hour))
	put(t, f.Cert, cert)
	put(t, f.Key, key)
	put(t, f.ClientCA, own.pem)
	l, err := newLiveTLS(f, slog.New(slog.DiscardHandler), reloadCounter())
	must(t, err)
	old, oldKey := own.issue(t, 3, "", time.Now().Add(-time.Hour))
	for name, pair := range map[string][2][]byte{"none": {}, "expired": {old, oldKey}} {
		if _, err := handshake(t, l, roots, pair[0], pair[1]); err == nil {
			t.Errorf("%s: the client was let in", name)
		}
	}
}

func TestTLSFilesThatCannotBeUsedAreNamed(t *testing.T) {
	f, own := tlsFolder(t), newAuthority(t, "own")
	if _, err := newLiveTLS(f, slog.New(slog.DiscardHandler), reloadCounter()); err == nil || !strings.Contains(err.Error(), f.Cert) {
		t.Errorf("no file: got %v, want %s named", err, f.Cert)
	}
	cert, _ := own.issue(t, 1, "", time.Now().Add(time.Hour))
	_, key := own.issue(t, 2, "", time.Now().Add(time.Hour))
	put(t, f.Cert, cert)
	put(t, f.Key, key)
	put(t, f.ClientCA, []byte("nothing"))
	if _, err := newLiveTLS(f, slog.New(slog.DiscardHandler), reloadCounter()); err == nil || !strings.Contains(err.Error(), f.Key) {
		t.Errorf("a key of another certificate: got %v, want %s named", err, f.Key)
	}
	cert, key = own.issue(t, 3, "", time.Now().Add(time.Hour))
	put(t, f.Cert, cert)
	put(t, f.Key, key)
	if _, err := newLiveTLS(f, slog.New(slog.DiscardHandler), reloadCounter()); err == nil || !strings.Contains(err.Error(), f.ClientCA) {
		t.Errorf("no certificate in the client CA: got %v, want %s named", err, f.ClientCA)
	}
}

func TestIdentitiesAreTheAlternativeNamesOfACertificate(t *testing.T) {
	own := newAuthority(t, "own")
	raw, _ := own.issue(t, 1, "spiffe://example.org/ns/shop/sa/web", time.Now().Add(time.Hour))
	block, _ := pem.Decode(raw)
	cert, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	if got, want := identitiesOf(cert), []string{"spiffe://example.org/ns/shop/sa/web", "127.0.0.1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
