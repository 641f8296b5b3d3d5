package xdsserver

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/slicecast/slicecast/internal/endpoint"
)

const (
	atOne  = "p0 / w1 10.0.0.1:8080"
	atTwo  = "p0 / w1 10.0.0.2:8080"
	atNine = "p0 / w1 10.0.0.9:8080"

	http2Cluster = "cluster of HTTP/2"
)

// row is a fault that a system of this kind had, by its number in the list of faults.
type row struct {
	what  string
	run   func(t *testing.T, open func(*bench) *subscriber)
	delta bool // it is about delta alone
}

// test runs the row as a client of each protocol that it is about.
func (r row) test(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		r.run(t, func(b *bench) *subscriber { return b.subscriber(t, b.deltaClient()) })
	})
	if !r.delta {
		t.Run("sotw", func(t *testing.T) {
			r.run(t, func(b *bench) *subscriber { return b.subscriber(t, b.sotwClient()) })
		})
	}
}

// rows are those faults that concern the protocol. Each is told once and run by a client of each protocol.
var rows = map[int]row{
	57:  {what: "a service without endpoints has no answer", run: rowEmptyIsAnswered},
	58:  {what: "a changed cluster waits for its assignment for ever", run: rowAssignmentFollowsCluster},
	59:  {what: "hosts are gone after an edit of their cluster", run: rowHostsStayThroughClusterEdits},
	60:  {what: "all clusters warm at once, their assignments late", run: rowManyClustersChange},
	61:  {what: "a cluster after its assignment waits for ever", run: rowClusterAfterAssignment},
	63:  {what: "who asked too early never hears of it", run: rowUnknownComesLater},
	65:  {what: "what went while the client was away stays", run: rowGoneWhileAway},
	66:  {what: "an update of one service removes another", run: rowOthersUntouched},
	68:  {what: "a name that is asked for again has no answer", run: rowAskedAgain},
	69:  {what: "a cluster that comes back has no endpoints", run: rowClusterComesBack},
	70:  {what: "who asks for fewer names than there are has no answer", run: rowSubset},
	73:  {what: "a subscription is overwritten by what was sent", run: rowSubscriptionSurvives},
	74:  {what: "nothing is answered until all names are asked for", run: rowPartialAnswers},
	77:  {what: "an update is lost since another replica counts alike", run: rowReplicasCountAlike},
	78:  {what: "a rejected response is sent again and again", run: rowRejectedIsParked},
	81:  {what: "who comes back has what was there before", run: rowReconnect},
	82:  {what: "streams that open and close race with pushes", run: rowStreamsRace},
	83:  {what: "a new cluster without endpoints warms for minutes", run: rowNewClusterWithoutEndpoints},
	85:  {what: "an assignment is empty for a moment", run: rowNeverEmptyBetween},
	89:  {what: "an assignment is there before its cluster", run: rowOrder},
	90:  {what: "each stream leaves a goroutine", run: rowStreamsLeaveNothing},
	111: {what: "one slow client holds up all", run: rowSlowClient},
	118: {what: "what streams are given changes under them", run: rowSharedWithReaders},
}

func TestRowsOfTheProtocol(t *testing.T) {
	for _, n := range slices.Sorted(maps.Keys(rows)) {
		t.Run(fmt.Sprint(n, " ", rows[n].what), rows[n].test)
	}
}

// grpcCart gives the State of cart as HTTP/2 or not, so that its cluster changes.
func grpcCart(rv uint64, http2 bool, addrs ...string) endpoint.State {
	port := endpoint.Port{Name: "http", Number: 8080}
	if http2 {
		port.AppProtocol = "grpc"
	}
	st := cartAt(rv, addrs...)
	return stateOf(withPorts(st.Slices[0], port))
}

func rowEmptyIsAnswered(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t, emptyState("prod", "shop", "cart", 7)))
	p.want("eds", cart)
	p.takes(cart, "")
	p.want("eds", "never.shop:http")
	p.takes("never.shop:http", "")
	p.quiet()
}

func rowAssignmentFollowsCluster(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart)
	p.takes(cart, atOne)
	b.put(grpcCart(8, true, "10.0.0.1"))
	p.take("cds")
	p.takes(cart, atOne) // unasked, though it is as it was
	p.want("eds", cart)
	if p.delta != nil {
		p.takes(cart, atOne)
	}
	p.quiet()
}

func rowHostsStayThroughClusterEdits(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart)
	p.takes(cart, atOne)
	for i := range 6 {
		b.put(grpcCart(uint64(8+i), i%2 == 0, "10.0.0.1"))
		for kinds := 0; kinds != 3; {
			g := p.recv()
			if p.delta != nil {
				p.ack(g)
			} else {
				p.accept(g, p.names[g.kind]...)
			}
			switch text, has := g.res[cart]; {
			case len(g.removed) > 0 || !has || text == "":
				t.Fatalf("edit %d: got %s %v, removed %v", i, g.kind, g.res, g.removed)
			case g.kind == "cds":
				kinds |= 1
			default:
				kinds |= 2
			}
		}
	}
	// Nor when the client is behind with its acknowledgements.
	p.quiet()
	for i, http2 := range []bool{true, false, true} {
		b.put(grpcCart(uint64(20+i), http2, "10.0.0.1"))
		for _, want := range []string{"cds", "eds"} {
			if g := p.recv(); g.kind != want || g.res[cart] == "" {
				t.Fatalf("edit %d: got %s %v, want %s", i, g.kind, g.res, want)
			}
		}
	}
}

func rowManyClustersChange(t *testing.T, open func(*bench) *subscriber) {
	const n = 50
	state := func(i int, rv uint64, http2 bool) endpoint.State {
		return stateOf(ofService(grpcCart(rv, http2, "10.0.0.1").Slices[0], "shop", fmt.Sprintf("svc-%02d", i)))
	}
	var states []endpoint.State
	var names []string
	for i := range n {
		states = append(states, state(i, 7, false))
		names = append(names, fmt.Sprintf("svc-%02d.shop:http", i))
	}
	b := serving(t, states...)
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", names...)
	p.take("eds")
	for i := range n {
		b.put(state(i, 8, true))
	}
	// Every cluster that was sent anew has its assignment after it.
	due, changed := map[string]bool{}, map[string]bool{}
	for len(changed) < n || len(due) > 0 {
		g := p.recv()
		if p.delta != nil {
			p.ack(g)
		} else {
			p.accept(g, p.names[g.kind]...)
		}
		for _, name := range g.names {
			switch {
			case g.kind == "cds" && g.res[name] == http2Cluster && !changed[name]:
				due[name], changed[name] = true, true
			case g.kind == "eds" && g.res[name] != atOne:
				t.Fatalf("%s has %q", name, g.res[name])
			case g.kind == "eds":
				delete(due, name)
			}
		}
	}
}

func rowClusterAfterAssignment(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	p.want("cds")
	p.take("cds")
	p.takes(cart, atOne)
	p.quiet()
}

func rowUnknownComesLater(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t)
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, "")
	p.want("cds", cart)
	if p.delta != nil {
		if g := p.take("cds"); !slices.Equal(g.removed, []string{cart}) {
			t.Fatalf("got %+v, want the cluster named as removed", g)
		}
	} else if g := p.take("cds"); len(g.names) > 0 {
		t.Fatalf("got %+v, want no cluster", g)
	}
	b.put(cartAt(8, "10.0.0.1"))
	if g := p.take("cds"); !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %+v, want the cluster", g)
	}
	p.takes(cart, atOne)
	p.quiet()
}

func rowGoneWhileAway(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	held := p.take("cds")
	p.cancel()
	b.put(emptyState("prod", "shop", "api", 20))
	q := open(b)
	if q.delta == nil {
		q.askAs("cds", held.version, "", nil)
		if g := q.take("cds"); !slices.Equal(g.names, []string{cart}) {
			t.Fatalf("got %v, want %s alone", g.names, cart)
		}
		return
	}
	q.subscribe("cds", held.vers)
	if g := q.take("cds"); len(g.names) > 0 || !slices.Equal(g.removed, []string{api}) {
		t.Fatalf("got %+v, want %s removed", g, api)
	}
}

func rowOthersUntouched(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart, api)
	p.take("eds")
	b.put(cartAt(9, "10.0.0.2"))
	p.takes(cart, atTwo)
	b.put(otherAt("web", 10, "10.0.0.3"))
	want := []string{"web.shop:http"}
	if p.delta == nil {
		want = []string{api, cart, "web.shop:http"} // a name that is missing would be removed
	}
	if g := p.take("cds"); !slices.Equal(slices.Sorted(slices.Values(g.names)), want) || len(g.removed) > 0 {
		t.Fatalf("got %v, removed %v, want %v", g.names, g.removed, want)
	}
	p.quiet() // The assignments of clusters that are as they were do not follow.
}

func rowAskedAgain(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9")))
	p.want("eds", cart, api)
	p.take("eds")
	for range 3 {
		if p.delta == nil {
			p.drop("eds", cart) // A SotW client that names it without a break still has it.
		}
		p.want("eds", cart)
		p.takes(cart, atOne)
	}
	p.quiet()
}

func rowClusterComesBack(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart, api)
	p.take("eds")
	b.put(emptyState("prod", "shop", "cart", 20))
	if p.delta != nil {
		p.takes(cart, "")
		p.take("cds")
	} else { // A SotW response is all that there is, and so cannot come last.
		p.take("cds")
		p.takes(cart, "")
	}
	p.drop("eds", cart)
	p.quiet()
	b.put(cartAt(21, "10.0.0.1"))
	p.take("cds")
	p.want("eds", cart)
	p.takes(cart, atOne)
	p.quiet()
}

func rowSubset(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	b.put(otherAt("api", 9, "10.0.0.8"))
	p.quiet()
	b.put(cartAt(10, "10.0.0.2"))
	p.takes(cart, atTwo)
	p.quiet()
}

func rowSubscriptionSurvives(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.1"))
	p := open(b)
	p.want("eds", cart, api)
	p.take("eds")
	for i := range 3 {
		at := fmt.Sprintf("10.0.1.%d", i)
		b.put(cartAt(uint64(10+2*i), at))
		p.takes(cart, "p0 / w1 "+at+":8080")
		b.put(otherAt("api", uint64(11+2*i), at))
		p.takes(api, "p0 / w1 "+at+":8080")
	}
}

func rowPartialAnswers(t *testing.T, open func(*bench) *subscriber) {
	p := open(serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9")))
	p.want("eds", api) // of a cluster that the client was configured with
	p.takes(api, atNine)
	p.want("cds")
	p.take("cds")
	p.takes(api, atNine)
	p.want("eds", cart)
	p.takes(cart, atOne)
	p.quiet()
}

func rowReplicasCountAlike(t *testing.T, open func(*bench) *subscriber) {
	one, two := serving(t, cartAt(7, "10.0.0.1")), serving(t, cartAt(7, "10.0.0.2")) // the same position, other content
	p := open(one)
	p.want("eds", cart)
	held := p.take("eds")
	q := open(two)
	q.names["eds"] = []string{cart}
	if q.delta != nil {
		q.subscribe("eds", held.vers, cart)
	} else {
		q.askAs("eds", held.version, "", nil, cart)
	}
	q.takes(cart, atTwo)
}

func rowRejectedIsParked(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	for i := range 3 {
		b.put(cartAt(uint64(8+i), fmt.Sprintf("10.0.2.%d", i)))
		p.refuse("eds")
		p.quiet()
	}
	b.put(cartAt(20, "10.0.2.2")) // What was rejected, at another version of the slice.
	p.quiet()
	b.put(cartAt(21, "10.0.0.2"))
	p.takes(cart, atTwo)
	b.put(cartAt(22, "10.0.2.2")) // What was rejected, after something else.
	p.quiet()
	b.put(cartAt(23, "10.0.0.1"))
	p.takes(cart, atOne)
	if n := counter(t, b.server.metrics.nacks.WithLabelValues("eds")); n != 3 {
		t.Errorf("%v rejections were counted, want 3", n)
	}
}

func rowReconnect(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("eds", cart, api)
	held := p.take("eds")
	p.cancel()
	b.put(cartAt(9, "10.0.0.2"))
	q := open(b)
	q.names["eds"] = []string{cart, api}
	if q.delta != nil {
		q.subscribe("eds", held.vers, cart, api)
		q.takes(cart, atTwo)
		q.quiet()
		return
	}
	q.askAs("eds", held.version, "", nil, cart, api)
	if g := q.take("eds"); g.res[cart] != atTwo || g.res[api] != atNine {
		t.Fatalf("got %v", g.res)
	}
}

// streamsDuring opens streams, has each say what it wants, and ends them, while States change.
func streamsDuring(t *testing.T, b *bench, open func(*bench) *subscriber, streams int) {
	t.Helper()
	var changes sync.WaitGroup
	stop := make(chan struct{})
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				b.put(grpcCart(uint64(10+i), i%3 == 0, fmt.Sprintf("10.0.%d.%d", i/200%200, 1+i%200)))
			}
		}
	})
	for range streams {
		p := open(b)
		p.want("cds")
		p.want("eds", cart)
		for g := p.recv(); g.kind != "eds"; g = p.recv() {
			if p.delta != nil {
				p.ack(g)
			} else {
				p.accept(g, p.names[g.kind]...)
			}
		}
		p.cancel()
	}
	close(stop)
	changes.Wait()
}

func rowStreamsRace(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	streamsDuring(t, b, open, 100)
}

func rowNewClusterWithoutEndpoints(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t)
	p := open(b)
	p.want("cds")
	p.take("cds")
	b.put(stateOf(sliceOf("prod", "cart-x1", 8, ep("10.0.0.1 --- a"))))
	if g := p.take("cds"); !slices.Equal(g.names, []string{cart}) {
		t.Fatalf("got %v, want the cluster", g.names)
	}
	p.want("eds", cart)
	p.takes(cart, "")
	b.put(grpcCart(9, true))
	p.take("cds")
	p.takes(cart, "")
	b.put(grpcCart(10, true, "10.0.0.1"))
	p.takes(cart, atOne)
	p.quiet()
}

func rowNeverEmptyBetween(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, stateOf(sliceOf("prod", "a", 7, ep("10.0.0.1 rs- a"))))
	p := open(b)
	p.want("eds", cart)
	p.takes(cart, atOne)
	steps := []endpoint.State{ // A pod is replaced; its successor is in another slice, ready before the old one is gone.
		stateOf(sliceOf("prod", "a", 7, ep("10.0.0.1 rs- a")), sliceOf("prod", "b", 8, ep("10.0.0.2 --- b"))),
		stateOf(sliceOf("prod", "a", 9, ep("10.0.0.1 -st a")), sliceOf("prod", "b", 8, ep("10.0.0.2 --- b"))),
		stateOf(sliceOf("prod", "a", 9, ep("10.0.0.1 -st a")), sliceOf("prod", "b", 10, ep("10.0.0.2 rs- b"))),
		stateOf(sliceOf("prod", "a", 11), sliceOf("prod", "b", 10, ep("10.0.0.2 rs- b"))),
		stateOf(sliceOf("prod", "b", 10, ep("10.0.0.2 rs- b"))),
	}
	for _, st := range steps {
		b.put(st)
	}
	for {
		g := p.take("eds")
		if g.res[cart] == "" {
			t.Fatal("the assignment is empty while a pod is usable")
		}
		if g.res[cart] == atTwo {
			break
		}
	}
	p.quiet()
}

func rowOrder(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"), otherAt("api", 8, "10.0.0.9"))
	p := open(b)
	p.want("cds")
	p.take("cds")
	p.want("eds", cart, api, "web.shop:http")
	p.take("eds")
	b.server.store.mu.Lock() // All three are there before anything is sent.
	var err error
	for i, st := range []endpoint.State{cartAt(20, "10.0.0.2"), emptyState("prod", "shop", "api", 21), otherAt("web", 22, "10.0.0.3")} {
		if e := b.server.store.notice(stateNoticeAt(uint64(100+i), st)); e != nil {
			err = e
		}
	}
	b.server.store.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	first := p.take("cds")
	if !slices.Contains(first.names, "web.shop:http") || len(first.removed) > 0 {
		t.Fatalf("got %v, removed %v first, want the new cluster", first.names, first.removed)
	}
	seen := map[string]string{}
	for len(seen) < 3 {
		maps.Copy(seen, p.take("eds").res)
	}
	want := map[string]string{cart: atTwo, api: "", "web.shop:http": "p0 / w1 10.0.0.3:8080"}
	if !maps.Equal(seen, want) {
		t.Fatalf("got %v, want %v", seen, want)
	}
	if p.delta != nil {
		if g := p.take("cds"); !slices.Equal(g.removed, []string{api}) {
			t.Fatalf("got %+v, want the old cluster removed last", g)
		}
	}
}

func rowStreamsLeaveNothing(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	first := open(b)
	first.want("eds", cart)
	first.takes(cart, atOne)
	before := runtime.NumGoroutine()
	for range 1000 {
		p := open(b)
		p.want("eds", cart)
		p.takes(cart, atOne)
		p.cancel()
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		b.server.hub.mu.Lock()
		streams := len(b.server.hub.streams)
		b.server.hub.mu.Unlock()
		more := runtime.NumGoroutine() - before
		if streams == 1 && more <= 10 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d streams and %d more goroutines after 1,000 streams", streams, more)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func rowSlowClient(t *testing.T, open func(*bench) *subscriber) {
	var states []endpoint.State
	var names []string
	for i := range 40 { // More than the windows of HTTP/2 take.
		st := bigService(1000).States[0]
		for j, sl := range st.Slices {
			st.Slices[j] = ofService(sl, "shop", fmt.Sprintf("big-%02d", i))
		}
		st.Key = st.Slices[0].Key
		states = append(states, st)
		names = append(names, fmt.Sprintf("big-%02d.shop:http", i))
	}
	b := serving(t, append(states, cartAt(7, "10.0.0.1"))...)
	deaf(t, b, append(names, cart))
	var others []*subscriber
	for range 20 {
		p := open(b)
		p.want("eds", cart)
		p.takes(cart, atOne)
		others = append(others, p)
	}
	for i := range 20 {
		at := fmt.Sprintf("10.0.3.%d", i)
		b.put(cartAt(uint64(10+i), at))
		for _, p := range others {
			p.takes(cart, "p0 / w1 "+at+":8080")
		}
	}
}

// deaf opens a stream on a connection of its own that wants much and reads nothing.
func deaf(t *testing.T, b *bench, names []string) {
	t.Helper()
	own := &bench{t: t, server: b.server}
	own.dial()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = own.conn.Close()
	})
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(own.conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeAssignment, ResourceNames: names}); err != nil {
		t.Fatal(err)
	}
}

func rowSharedWithReaders(t *testing.T, open func(*bench) *subscriber) {
	b := serving(t, cartAt(7, "10.0.0.1"))
	// Held by many, and looked at meanwhile.
	for range 20 {
		p := open(b)
		p.want("eds", cart)
		p.take("eds")
		go func() { // Takes what comes, until the stream ends.
			for g := range p.in {
				if !strings.HasPrefix(g.res[cart], "p0 / w1 10.0.") {
					t.Errorf("got %v", g.res)
				}
			}
		}()
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				b.server.hub.mu.Lock()
				n := len(b.server.hub.streams)
				b.server.hub.mu.Unlock()
				if n == 0 {
					t.Error("no stream")
				}
				runtime.Gosched()
			}
		}
	}()
	streamsDuring(t, b, open, 50)
	close(stop)
	<-done
}
