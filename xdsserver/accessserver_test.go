package xdsserver

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// guarded is a server with mTLS and two rules: "shop" may see the namespace shop of prod, "admin" sees everything.
type guarded struct {
	*bench
	own   authority
	roots *x509.CertPool
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	access, err := NewAccess([]AccessRule{
		{Identity: "spiffe://example.org/shop", Namespaces: []string{"shop"}, Clusters: []string{"prod"}},
		{Identity: "spiffe://example.org/admin", Namespaces: []string{"*"}, Clusters: []string{"*"}},
	})
	must(t, err)
	g := &guarded{own: newAuthority(t, "own"), roots: x509.NewCertPool()}
	g.roots.AddCert(g.own.cert)
	files := tlsFolder(t)
	cert, key := g.own.issue(t, 11, "", time.Now().Add(time.Hour))
	put(t, files.Cert, cert)
	put(t, files.Key, key)
	put(t, files.ClientCA, g.own.pem)
	g.bench = newBench(t, func(c *Config) { c.TLS, c.Access = files, func() *Access { return access } })
	secret := stateOf(ofService(sliceOf("prod", "key-x1", 7, ep("10.0.9.1 rs-")), "vault", "key"))
	g.with(cartAt(7, "10.0.0.1"), stateOf(sliceOf("edge", "e", 3, ep("10.1.0.1 rs-"))), secret)
	_ = g.conn.Close()
	return g
}

// as gives the connection of a client with that identity, certified by an authority; "" is a client without certificate.
func (g *guarded) as(by authority, identity string) *guarded {
	g.t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: g.roots}
	if identity != "" {
		pair, err := tls.X509KeyPair(by.issue(g.t, 1, "spiffe://example.org/"+identity, time.Now().Add(time.Hour)))
		must(g.t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	conn, err := grpc.NewClient(g.server.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	must(g.t, err)
	g.t.Cleanup(func() { _ = conn.Close() })
	other := *g.bench
	other.conn = conn
	return &guarded{bench: &other, own: g.own, roots: g.roots}
}

func TestAClientSeesOnlyWhatItsIdentityMaySee(t *testing.T) {
	g := newGuarded(t)
	const key = "key.vault:http"
	t.Run("delta", func(t *testing.T) {
		c := g.as(g.own, "shop").deltaClient()
		c.subscribe("eds", nil, cart, key, "cart.shop.edge:http")
		c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080", key: "", "cart.shop.edge:http": ""})
		c.subscribe("cds", nil)
		c.expect(map[string]string{cart: "cluster"})
		c.expect(map[string]string{cart: "p0 / w1 10.0.0.1:8080"}) // again, after its cluster

		// What is hidden is not seen when it changes either; what is seen is.
		g.put(stateOf(ofService(sliceOf("prod", "key-x1", 8, ep("10.0.9.2 rs-")), "vault", "key")))
		g.put(stateOf(ofService(sliceOf("prod", "new-x1", 8, ep("10.0.9.3 rs-")), "vault", "new")))
		g.put(stateOf(sliceOf("edge", "e", 4, ep("10.1.0.2 rs-"))))
		c.fence()
		g.put(cartAt(9, "10.0.0.2"))
		c.expect(map[string]string{cart: "p0 / w1 10.0.0.2:8080"})

		// A service that a hidden cluster has is there once one that is seen has it too.
		pay := func(cluster string, rv uint64) endpoint.State {
			return stateOf(ofService(sliceOf(cluster, "pay", rv, ep("10.0.5.1 rs-")), "shop", "pay"))
		}
		g.put(pay("edge", 5))
		c.fence()
		g.put(pay("prod", 10))
		c.expect(map[string]string{"pay.shop:http": "cluster"})
	})
	t.Run("sotw", func(t *testing.T) {
		c := g.as(g.own, "shop").sotwClient()
		c.ask("cds")
		if got := c.accept(c.recv()); !slices.Equal(got.names, []string{cart, "pay.shop:http"}) {
			t.Errorf("got clusters %q, want %q and that of pay", got.names, cart)
		}
	})
	t.Run("another identity", func(t *testing.T) {
		c := g.as(g.own, "admin").deltaClient()
		c.subscribe("eds", nil, key, "cart.shop.edge:http")
		c.expect(map[string]string{key: "p0 / w1 10.0.9.2:8080", "cart.shop.edge:http": "p0 / w1 10.1.0.2:8080"})
	})
	t.Run("an identity that no rule names", func(t *testing.T) {
		c := g.as(g.own, "stranger").deltaClient()
		c.subscribe("eds", nil, cart)
		c.expect(map[string]string{cart: ""})
	})
	if got := counter(t, g.server.metrics.hiddenNames); got == 0 {
		t.Error("hidden names were asked for and not counted")
	}
}

func TestAClientWithoutCertificateOrWithAWrongOneGetsNothing(t *testing.T) {
	g := newGuarded(t)
	for name, client := range map[string]*guarded{
		"no certificate": g.as(g.own, ""), "another authority": g.as(newAuthority(t, "other"), "admin"),
	} {
		ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(client.conn).DeltaAggregatedResources(t.Context())
		if err == nil {
			_, err = ads.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: the stream ended with %v, want it refused", name, err)
		}
	}
}

func TestAServiceIsAsIfOnlyTheClustersOfTheScopeHadIt(t *testing.T) {
	access, err := NewAccess([]AccessRule{{Identity: "a", Namespaces: []string{"shop"}, Clusters: []string{"prod"}}})
	must(t, err)
	scope := access.Scope([]string{"a"})
	seen := []endpoint.State{cartAt(7, "10.0.0.1")}
	all := append([]endpoint.State{stateOf(sliceOf("edge", "e", 3, ep("10.1.0.1 rs-")))}, seen...)
	for _, view := range []View{{}, {Cluster: "edge"}, {Cluster: "prod"}} {
		want := encodeAssignment(Assign(Service{States: seen}, view, mustName(t, cart)))
		view.Scope = scope
		if got := encodeAssignment(Assign(Service{States: all}, view, mustName(t, cart))); got.version != want.version {
			t.Errorf("view of cluster %q: got %s, want %s", view.Cluster, got.body, want.body)
		}
	}
}
