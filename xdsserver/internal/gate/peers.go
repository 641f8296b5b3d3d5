package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Peers are the other replicas that may hold streams.
type Peers interface {
	// Others gives the ids of those that are registered, as they were heard last. Replica.Changed tells of changes.
	Others() []string
	// Read gives them at a moment after the call. An error says that the registry is not heard.
	Read(ctx context.Context) ([]string, error)
	// Ask puts a question to the Gate.Peer of one. It returns at the latest when ctx ends; an error is tried again.
	Ask(ctx context.Context, id string, body []byte) ([]byte, error)
}

// How the others are asked.
const (
	peerHold    = 4 * time.Second        // how long one may keep a question that it cannot answer with "clean"
	peerMargin  = time.Second            // how much longer its answer is waited for
	peerRetry   = 100 * time.Millisecond // after a question that found nobody
	readTimeout = time.Second            // of the registry
	releaseTime = 300 * time.Millisecond // of taking promises back
)

// silentPeer stands for the node ids of the clients of a replica that does not answer.
const silentPeer = "clients of a replica that does not answer"

// question is what one gate asks another.
type question struct {
	Wait         string     `json:"wait"` // names the wait that asks, among those of all replicas
	Cluster      string     `json:"cluster"`
	Namespace    string     `json:"namespace,omitempty"`
	Pod          string     `json:"pod,omitempty"`
	UID          string     `json:"uid,omitempty"`
	Addrs        []string   `json:"addresses,omitempty"`
	Evidence     []evidence `json:"evidence,omitempty"`
	Bound        string     `json:"bound,omitempty"` // without evidence: the floor that must be reached
	IgnoreSilent Duration   `json:"ignore_silent,omitempty"`
	Hold         Duration   `json:"hold,omitempty"`    // how long it may be kept
	Release      bool       `json:"release,omitempty"` // take the promise of this wait back
}

// evidence is a slice at a version that shows the pod leaving.
type evidence struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	Slice     string `json:"slice"`
	Version   string `json:"version"`
}

// reply is the answer to a question.
type reply struct {
	Clean    bool    `json:"clean"` // and it has promised not to choose the pod again
	Draining bool    `json:"draining,omitempty"`
	Proxies  []Proxy `json:"proxies,omitempty"`
	Missing  []Proxy `json:"missing,omitempty"`
}

// question puts what the judge has learnt into a question.
func (j *judge) question(wait string) question {
	q := question{
		Wait: wait, Cluster: j.pod.Cluster, Namespace: j.pod.Namespace, Pod: j.pod.Name, UID: j.pod.UID,
		IgnoreSilent: j.req.IgnoreSilent,
	}
	for _, a := range j.pod.Addrs {
		q.Addrs = append(q.Addrs, a.String())
	}
	for at, v := range j.evidence {
		q.Evidence = append(q.Evidence, evidence{at.key.Namespace, at.key.Service, at.slice, v.String()})
	}
	if len(q.Evidence) == 0 && !j.bound.IsZero() {
		q.Bound = j.bound.String()
	}
	return q
}

// judgeOf gives the judge of a question that another gate has asked.
func judgeOf(cfg *Config, q question) (*judge, error) {
	pod, err := Request{Cluster: q.Cluster, Namespace: q.Namespace, Pod: q.Pod, UID: q.UID, IP: strings.Join(q.Addrs, ",")}.pod()
	if err != nil {
		return nil, err
	}
	if q.Cluster == "" || q.Wait == "" || len(q.Wait) > 100 {
		return nil, fmt.Errorf("a question between gates names a cluster and a wait, got %q and %q", clip(q.Cluster), clip(q.Wait))
	}
	j := newJudge(cfg, pod, Request{IgnoreSilent: q.IgnoreSilent}, time.Now())
	for _, e := range q.Evidence {
		v, err := endpoint.ParseVersion(e.Version)
		if err != nil {
			return nil, err
		}
		j.evidence[place{endpoint.Key{Cluster: q.Cluster, Namespace: e.Namespace, Service: e.Service}, e.Slice}] = v
	}
	if q.Bound != "" {
		if j.bound, err = endpoint.ParseVersion(q.Bound); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// lookPeer judges one moment for another gate: is this replica clean? The moment counts only as a whole.
func (j *judge) lookPeer(m Moment, now time.Time) verdict {
	s := m.Sight(j.pod)
	j.note(s)
	blocking, wake := j.blocking(m.Holders(Targets{Addrs: j.pod.Addrs, Except: s.Foreign}), now)
	v := verdict{wake: wake}
	for _, h := range blocking {
		v.missing = append(v.missing, j.proxies[h.Stream])
	}
	used := slices.ContainsFunc(s.Places, func(p Place) bool { return p.Used })
	behind := len(j.evidence) == 0 && s.Floor.Compare(j.bound) < 0
	if len(blocking) == 0 && !used && !behind && j.knows(m, s.Floor) {
		v.done, v.drained, v.promise = true, true, len(s.Places) > 0
	}
	return v
}

// Peer answers what another gate asks, for the query "drain" to this replica: at once when it is clean or the wait has
// ended, else when it is, or when the question was kept for as long as it says.
func (g *Gate) Peer(ctx context.Context, body []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		g.metrics.refuse(refusedBad)
		return nil, RequestError{fmt.Errorf("body of a question between gates: %w", err)}
	}
	j, err := judgeOf(&g.cfg, q)
	if err != nil {
		g.metrics.refuse(refusedBad)
		return nil, RequestError{err}
	}
	if q.Release {
		g.cfg.Replica.Release(j.pod, q.Wait)
		return json.Marshal(reply{})
	}
	held, cancel := context.WithTimeout(ctx, min(max(time.Duration(q.Hold), 0), peerHold))
	defer cancel()
	v := g.holdFor(held, j, q.Wait)
	a := j.answer(v, time.Now())
	return json.Marshal(reply{Clean: v.drained, Draining: j.draining, Proxies: a.Proxies, Missing: a.Missing})
}

// holdFor looks until the replica is clean or ctx ends.
func (g *Gate) holdFor(ctx context.Context, j *judge, wait string) (v verdict) {
	for {
		changed := g.cfg.Replica.Changed()
		looked := time.Now()
		g.cfg.Replica.Step(j.pod, wait, func(m Moment) bool {
			v = j.lookPeer(m, time.Now())
			return v.promise
		})
		if v.done {
			return v
		}
		next := looked.Add(g.share(time.Since(looked)))
		wake := time.NewTimer(time.Until(v.wake))
		if v.wake.IsZero() {
			wake.Stop()
		}
		select {
		case <-changed:
			rest(ctx, next)
		case <-wake.C:
		case <-ctx.Done():
			wake.Stop()
			return v
		}
		wake.Stop()
	}
}

// team is the other replicas, as one wait asks them: each by a goroutine, until it is clean.
type team struct {
	g       *Gate
	wait    string
	changed chan struct{} // of capacity 1: an answer has come
	work    sync.WaitGroup

	// What follows belongs to the goroutine of the wait, but for the replies, which mu guards.
	began   bool
	asked   []string // sorted
	heard   []string // of the others, when that was last looked at; sorted
	stop    context.CancelFunc
	told    map[string]bool // those that may have promised
	mu      sync.Mutex
	replies map[string]reply
}

func newTeam(g *Gate, wait string) *team {
	return &team{g: g, wait: wait, changed: make(chan struct{}, 1), stop: func() {}, told: map[string]bool{}, replies: map[string]reply{}}
}

// ask asks these, from the beginning: what was said of another set does not count.
func (t *team) ask(ctx context.Context, ids []string, q question) {
	t.stop()
	t.work.Wait()
	ctx, t.stop = context.WithCancel(ctx)
	if t.began {
		t.g.metrics.restarts.Inc()
	}
	t.began, t.asked = true, slices.Sorted(slices.Values(ids))
	t.replies = map[string]reply{}
	for _, id := range ids {
		t.told[id] = true
		t.work.Go(func() { t.askOne(ctx, id, q) })
	}
}

// askOne asks one until it is clean or ctx ends: first how it stands now, so that who is missing is known at once, then
// to keep the question.
func (t *team) askOne(ctx context.Context, id string, q question) {
	q.Hold = 0
	for ctx.Err() == nil {
		body, err := json.Marshal(q)
		if err != nil {
			panic("a question made of texts does not encode: " + err.Error())
		}
		patience, cancel := context.WithTimeout(ctx, peerHold+peerMargin)
		answer, err := t.g.cfg.Peers.Ask(patience, id, body)
		cancel()
		var r reply
		if err == nil {
			err = json.Unmarshal(answer, &r)
		}
		if err != nil {
			t.g.cfg.Log.Debug("a replica does not answer a drain question", "replica", id, "err", err)
			q.Hold = 0
			rest(ctx, time.Now().Add(peerRetry))
			continue
		}
		q.Hold = Duration(peerHold)
		t.mu.Lock()
		t.replies[id] = r
		t.mu.Unlock()
		select {
		case t.changed <- struct{}{}:
		default:
		}
		if r.Clean {
			return
		}
	}
}

// join adds what the others have said to a verdict that would be "drained" for this replica alone; all says that the
// others say so too.
func (t *team) join(j *judge, v *verdict) (all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = true
	for _, id := range t.asked {
		r, answered := t.replies[id]
		all = all && r.Clean
		j.draining = j.draining || r.Draining
		for _, p := range r.Proxies {
			j.proxies[id+"/"+p.Replica+"/"+p.Node+"/"+p.Address+"/"+p.Since.String()] = p
		}
		if !answered {
			v.missing = append(v.missing, Proxy{Node: silentPeer, Replica: id})
		} else if !r.Clean {
			v.missing = append(v.missing, r.Missing...)
		}
	}
	return all
}

// end stops asking. Where the answer is not "drained", the promises of this wait are taken back.
func (t *team) end(ctx context.Context, j *judge, drained bool) {
	t.stop()
	t.work.Wait()
	if drained || !t.began {
		return
	}
	t.g.cfg.Replica.Release(j.pod, t.wait)
	q := j.question(t.wait)
	q.Release = true
	body, err := json.Marshal(q)
	if err != nil {
		panic("a question made of texts does not encode: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	for id := range t.told {
		t.work.Go(func() {
			if _, err := t.g.cfg.Peers.Ask(ctx, id, body); err != nil {
				t.g.cfg.Log.Debug("a promise was not taken back", "replica", id, "err", err)
			}
		})
	}
	t.work.Wait()
}

// jointly makes of a verdict for this replica alone one for all of them.
func (g *Gate) jointly(ctx context.Context, t *team, j *judge, v verdict) verdict {
	if g.cfg.Peers == nil || !v.seen && !v.drained {
		return v
	}
	// What a read said stands until something newer is heard.
	if others := g.cfg.Peers.Others(); !t.began || !sameSet(others, t.heard) {
		t.heard = slices.Sorted(slices.Values(others))
		if !t.began || !sameSet(others, t.asked) {
			t.ask(ctx, others, j.question(t.wait))
		}
	}
	mine := v.drained
	all := t.join(j, &v)
	if !mine || !all {
		v.done, v.drained, v.reason = false, false, Unacknowledged
		return v
	}
	// One that came after the set was read may have clients that another one had. A set that has changed is asked anew.
	read, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	others, err := g.cfg.Peers.Read(read)
	switch {
	case err != nil:
		g.cfg.Log.Debug("the registry of replicas is not heard", "err", err)
		v.done, v.drained, v.reason, v.wake = false, false, Unknown, time.Now().Add(peerRetry)
	case !sameSet(others, t.asked):
		t.ask(ctx, others, j.question(t.wait))
		v.done, v.drained, v.reason = false, false, Unacknowledged
	}
	return v
}

func sameSet(ids, sorted []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(ids)), sorted)
}

// named gives a proxy that holds, in the words of an answer.
func (j *judge) named(h Holder) Proxy {
	return Proxy{h.Node, h.Address, cmp.Or(h.Replica, j.cfg.Name), h.Since, !h.Ended.IsZero()}
}
