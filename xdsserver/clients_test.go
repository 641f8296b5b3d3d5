package xdsserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked asks for a page of clients as the bus does.
func (b *bench) asked(r ClientsRequest) (page ClientsPage, size int) {
	b.t.Helper()
	body, err := json.Marshal(r)
	must(b.t, err)
	answer, err := b.server.Clients(b.t.Context(), body)
	must(b.t, err)
	must(b.t, json.Unmarshal(answer, &page))
	return page, len(answer)
}

func TestTheQueryTellsHowAClientStands(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	c := b.deltaClient()
	c.node = nodeOf("envoy-7", "prod", "eu", "eu-1a")
	c.subscribe("eds", nil, cart, "nothing.shop:http", "not a name")
	c.ack(c.recv())
	c.subscribe("cds", nil)
	c.ack(c.recv())
	c.ack(c.recv()) // the assignment, after its cluster
	settled(b, 1)
	b.put(cartAt(8, "10.0.0.2"))
	c.nack(c.recv())
	b.statusBecomes("envoy-7 cds "+cart+" SYNCED", "envoy-7 eds "+cart+" ERROR no", "envoy-7 eds not a name SYNCED", "envoy-7 eds nothing.shop:http SYNCED")
	b.put(cartAt(9, "10.0.0.3"))
	c.recv()
	page, _ := b.asked(ClientsRequest{Names: true})
	if len(page.Clients) != 1 || page.More != 0 {
		t.Fatalf("got %+v, want one client", page)
	}
	got := page.Clients[0]
	if got.Node != "envoy-7" || got.Cluster != "prod" || got.Region != "eu" || got.Zone != "eu-1a" || got.Service != "ads" || got.Protocol != "delta" ||
		!strings.HasPrefix(got.Address, "127.0.0.1:") || time.Since(got.Since) > time.Minute || len(got.Types) != 2 {
		t.Errorf("got %+v", got)
	}
	if cds := got.Types[0]; cds.Type != "cds" || !cds.Wildcard || cds.Names != 1 || cds.Synced != 1 || cds.Unresolved != 0 || cds.Unacknowledged != 0 {
		t.Errorf("got %+v", cds)
	}
	eds := got.Types[1]
	if eds.Type != "eds" || eds.Wildcard || eds.Names != 3 || eds.Synced != 2 || eds.Behind != 1 || eds.Unacknowledged != 1 || eds.NACKs != 1 || eds.Error != "no" || eds.ErrorAt == nil {
		t.Errorf("got %+v", eds)
	}
	if want := []string{"not a name", "nothing.shop:http"}; eds.Unresolved != 2 || !slices.Equal(eds.Nowhere, want) {
		t.Errorf("got %d unresolved, %q, want %q", eds.Unresolved, eds.Nowhere, want)
	}
	if want := []string{cart, "not a name", "nothing.shop:http"}; !slices.Equal(eds.Subscribed, want) {
		t.Errorf("got %q, want %q", eds.Subscribed, want)
	}
	if page, _ := b.asked(ClientsRequest{Node: "gateway"}); len(page.Clients) != 0 {
		t.Errorf("got %+v, want nobody of that name", page)
	}
}

func TestClientsComePageByPageAndFitAMessageOfTheBus(t *testing.T) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	const clients = 12
	long := make([]string, 0, 2000)
	for i := range 2000 {
		long = append(long, fmt.Sprintf("%04d%s", i, strings.Repeat("\x01", 300)))
	}
	for range clients {
		b.deltaClient().subscribe("eds", nil, long...)
	}
	for end := time.Now().Add(9 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		asked := 0
		for _, st := range b.server.hub.lookFrom(0, func(st *stream) bool { return st.types[assignments].asked }) {
			asked += min(int(st.number()), 1)
		}
		if asked == clients {
			break
		}
	}
	seen, pages := map[uint64]bool{}, 0
	for after := uint64(0); ; {
		page, size := b.asked(ClientsRequest{After: after, Names: true})
		if pages++; size > 1<<20 {
			t.Errorf("a page of %d bytes", size)
		}
		for _, c := range page.Clients {
			if c.Stream <= after || seen[c.Stream] {
				t.Errorf("stream %d comes again", c.Stream)
			}
			seen[c.Stream] = true
		}
		if after = page.More; after == 0 {
			break
		}
	}
	if len(seen) != clients || pages < 2 {
		t.Errorf("got %d clients in %d pages, want %d in several", len(seen), pages, clients)
	}
}

func TestAQuestionThatIsNoneIsRefused(t *testing.T) {
	b := serving(t)
	if _, err := b.server.Clients(t.Context(), []byte("?")); err == nil || !strings.Contains(err.Error(), "body of the clients query") {
		t.Errorf("got %v", err)
	}
}
