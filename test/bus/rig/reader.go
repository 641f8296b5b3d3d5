package rig

import (
	"fmt"
	"sync"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// Reader is a plain follower of STATE, as the wire contract tells outsiders to be one: it joins what it hears into
// its memory, and removes what it no longer finds only when its view agrees with a checkpoint.
type Reader struct {
	check func(key endpoint.Key, since uint64, holds shown)
	moved func()

	// mu guards all below.
	mu       sync.Mutex
	memory   map[endpoint.Key]endpoint.State
	clusters map[string]*readerCluster
	complete bool
}

type readerCluster struct {
	ledger *ledger.Ledger
	view   map[endpoint.Key]endpoint.State
	last   *ledger.Checkpoint
	doubt  ledger.Doubt
	floor  endpoint.Version // of the last complete view
	synced bool
}

func newReader(check func(endpoint.Key, uint64, shown), moved func()) *Reader {
	return &Reader{check: check, moved: moved, memory: map[endpoint.Key]endpoint.State{}, clusters: map[string]*readerCluster{}}
}

func (c *readerCluster) open() {
	c.ledger, c.view, c.last, c.doubt = ledger.New(), map[endpoint.Key]endpoint.State{}, nil, ledger.Doubt{}
}

// handle takes a notice.
func (r *Reader) handle(n ledger.Notice) error {
	defer r.moved()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch n.Kind {
	case ledger.Opened:
		r.complete = false
		for _, c := range r.clusters {
			c.open()
		}
	case ledger.Complete:
		r.complete = true
		for _, c := range r.clusters {
			c.ledger.Complete(n.Seq)
			if err := r.judge(c); err != nil {
				return err
			}
		}
	case ledger.Changed:
		c := r.cluster(n.Cluster)
		count, sum := ledger.OfState(*n.State)
		c.ledger.Put(n.Key.String(), n.Seq, count, sum)
		c.doubt.Changed(n.Seq)
		c.view[n.Key] = *n.State
		r.join(c, *n.State)
		return r.judge(c)
	case ledger.Certified:
		c := r.cluster(n.Cluster)
		c.ledger.Advance(n.Seq)
		c.last = &n.Checkpoint
		return r.judge(c)
	}
	return nil
}

func (r *Reader) cluster(name string) *readerCluster {
	c := r.clusters[name]
	if c == nil {
		c = &readerCluster{}
		c.open()
		if r.complete {
			c.ledger.Complete(0)
		}
		r.clusters[name] = c
	}
	return c
}

// join joins a State into the memory, and has the result checked.
func (r *Reader) join(c *readerCluster, st endpoint.State) {
	was, ok := r.memory[st.Key]
	if !ok {
		was.Key = st.Key
	}
	now := was.Join(st)
	r.memory[st.Key] = now
	if c.synced && !now.SameSlices(was) {
		r.check(st.Key, c.floor.Resource, whole(now.Slices))
	}
}

// whole is what somebody who looks at all endpoints may use of a service.
func whole(all []endpoint.Slice) shown {
	up, leaving := sortOut(all)
	return shown{up, leaving}
}

// judge compares the view with the last checkpoint; on agreement what is not in the view goes.
func (r *Reader) judge(c *readerCluster) error {
	if c.last == nil {
		return nil
	}
	cp, v := *c.last, c.ledger.Judge(*c.last)
	if v == ledger.Early {
		return nil
	}
	c.last = nil
	c.doubt.Take(v, cp)
	if v != ledger.Agrees {
		if c.doubt.Lost() {
			return fmt.Errorf("plain reader: %w", ledger.ErrResync)
		}
		return nil
	}
	if cp.Complete.After(c.floor) {
		c.floor = cp.Complete
	}
	c.synced = true
	for key := range r.memory {
		if r.clusters[key.Cluster] != c {
			continue
		}
		st, ok := c.view[key]
		if !ok {
			st.Key = key
		}
		if cp.Complete.After(st.Floor) {
			st = st.Join(endpoint.State{Key: key, Slices: st.Slices, Floor: cp.Complete})
		}
		r.join(c, st)
	}
	return nil
}

// differs says what the reader holds otherwise than the API server has it, "" when nothing.
func (r *Reader) differs(a *API) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[a.Cluster]
	if c == nil || !c.synced {
		return "is not in sync with " + a.Cluster
	}
	now := a.Now()
	if c.floor.Resource < now {
		return fmt.Sprintf("is complete as of %s, the API server is at %d", c.floor, now)
	}
	for _, key := range a.Keys() {
		if d := differ(r.memory[key].Slices, a.Live(key)); d != "" {
			return key.String() + ": " + d
		}
	}
	return ""
}

// differ compares slices by name, resourceVersion and content.
func differ(got, want []endpoint.Slice) string {
	if len(got) != len(want) {
		return fmt.Sprintf("holds %s, the API server has %s", names(got), names(want))
	}
	for i := range got {
		if got[i].Name != want[i].Name || got[i].Version.Resource != want[i].Version.Resource || !got[i].SameContent(want[i]) {
			return fmt.Sprintf("holds %s, the API server has %s", names(got), names(want))
		}
	}
	return ""
}

func names(all []endpoint.Slice) (out []string) {
	for _, s := range all {
		out = append(out, fmt.Sprint(s.Name, "@", s.Version, "(", len(s.Endpoints), ")"))
	}
	return out
}
