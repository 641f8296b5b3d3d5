package gate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// judge is what one wait has learnt of its pod. It belongs to the goroutine of the wait. It takes the time as an
// input and does no I/O, so that every rule can be tested on its own.
type judge struct {
	cfg   *Config
	pod   Pod
	req   Request
	began time.Time

	bound    endpoint.Version // the API server's version, read after began; zero until a watcher has told it
	ready    time.Time        // since when no slice shows the pod terminating
	fallback time.Time        // since when it is used by fallback alone
	always   time.Time        // since when it is used as ready though it is terminating
	seenAt   time.Time        // when step one was done first
	evidence map[place]endpoint.Version
	services map[Service]bool
	proxies  map[string]Proxy // by stream
	draining bool             // a proxy was let pass because it holds the address as DRAINING
}

// forgotten stands for the node ids of the clients that an earlier process may have had.
const forgotten = "clients of an earlier process of this replica"

// place names a slice.
type place struct {
	key   endpoint.Key
	slice string
}

// verdict is the outcome of one look.
type verdict struct {
	done    bool // the answer is final; else it stands only if the time is up
	drained bool
	promise bool // not to choose the pod again
	seen    bool // step one is done
	reason  Reason
	missing []Proxy
	wake    time.Time // when to look again though nothing changes; zero for never
	floor   bool      // the floor is needed now
}

func newJudge(cfg *Config, pod Pod, r Request, began time.Time) *judge {
	return &judge{
		cfg: cfg, pod: pod, req: r, began: began,
		evidence: map[place]endpoint.Version{}, services: map[Service]bool{}, proxies: map[string]Proxy{},
	}
}

// look judges one moment: step one, then who may still hold the address. The moment counts as drained only if all
// rules hold in it together; nothing of an earlier moment is taken for granted but evidence that the pod leaves.
func (j *judge) look(m Moment, now time.Time) verdict {
	s := m.Sight(j.pod)
	j.note(s)
	v := j.seen(s, now)
	if v.done {
		return v
	}
	holders := m.Holders(Targets{Addrs: j.pod.Addrs, Except: s.Foreign})
	if r := j.cfg.Restarted; !r.IsZero() && now.Before(r.Add(j.cfg.ProxyLostAfter)) {
		holders = append(holders, Holder{Stream: "", Node: forgotten, Since: r, Ended: r})
	}
	blocking, wake := j.blocking(holders, now)
	for _, h := range blocking {
		v.missing = append(v.missing, j.proxies[h.Stream])
	}
	v.wake = earlier(v.wake, wake)
	if !v.seen {
		return v
	}
	if j.seenAt.IsZero() {
		j.seenAt = now
	}
	if len(blocking) == 0 && j.knows(m, s.Floor) {
		// A pod that is in no slice is not promised away: it may join a service later, if it was only restarted.
		v.done, v.drained, v.promise = true, true, len(s.Places) > 0
		return v
	}
	v.reason = Unacknowledged
	return v
}

// note remembers what s shows of the pod: its addresses stay targets when it has left the State.
func (j *judge) note(s Sighting) {
	for _, p := range s.Places {
		if !slices.Contains(j.pod.Addrs, p.Addr) {
			j.pod.Addrs = append(slices.Clone(j.pod.Addrs), p.Addr)
		}
		for _, port := range p.Ports {
			j.services[Service{p.Key.Namespace, p.Key.Service, port.Name, port.Number}] = true
		}
	}
}

// seen is step one: is the pod known to leave, and used nowhere?
func (j *judge) seen(s Sighting, now time.Time) verdict {
	if len(s.Places) == 0 {
		return j.absent(s)
	}
	var used, usedReady, leaving bool
	for _, p := range s.Places {
		leaving = leaving || p.Conditions&endpoint.Terminating != 0
		used = used || p.Used
		usedReady = usedReady || p.Used && p.Conditions&endpoint.Ready != 0
	}
	if s.Shared {
		return verdict{done: true, reason: SharedAddress}
	}
	since(&j.ready, !leaving, now)
	since(&j.always, leaving && usedReady, now)
	since(&j.fallback, leaving && used && !usedReady, now)
	if !leaving {
		return j.staying(s, now)
	}
	for _, p := range s.Places {
		if at := (place{p.Key, p.Slice}); p.Version.After(j.evidence[at]) {
			j.evidence[at] = p.Version
		}
	}
	switch {
	case usedReady:
		return j.stillReady(s, now)
	case used:
		wait := cmp.Or(time.Duration(j.req.FallbackWait), j.cfg.FallbackWait)
		return until(LastEndpoint, j.fallback.Add(max(wait, 0)), now)
	}
	return verdict{seen: true, reason: Acknowledged}
}

// absent judges a pod that is in no slice.
func (j *judge) absent(s Sighting) verdict {
	switch {
	case len(j.evidence) > 0:
		return verdict{seen: true, reason: Acknowledged}
	case !j.bound.IsZero() && s.Floor.Compare(j.bound) >= 0:
		return verdict{seen: true, reason: NoService}
	default:
		return verdict{reason: Unknown, floor: true}
	}
}

// staying judges a pod that no slice shows terminating: either the news is on its way, or it does not leave. It asks
// for the floor only when half of the time for the news is over, since nearly always the news comes before.
func (j *judge) staying(s Sighting, now time.Time) verdict {
	half := j.ready.Add(j.cfg.LeavingWithin / 2)
	if now.Before(half) {
		return verdict{reason: Unknown, wake: half}
	}
	v := verdict{reason: Unknown, floor: true}
	if end := j.ready.Add(j.cfg.LeavingWithin); now.Before(end) {
		v.wake = end
	} else if !j.bound.IsZero() && s.Floor.Compare(j.bound) >= 0 {
		v.done, v.reason = true, NotLeaving
	}
	return v
}

// stillReady judges a pod that is used as ready though some slice shows it terminating: another slice may be late,
// or its Service publishes pods that are not ready, and then it stays so until it is gone.
func (j *judge) stillReady(s Sighting, now time.Time) verdict {
	for _, p := range s.Places {
		if p.Used && p.Conditions&endpoint.Ready != 0 && p.Conditions&endpoint.Terminating == 0 {
			j.always = time.Time{}
			return verdict{reason: Unknown}
		}
	}
	return until(AlwaysReady, j.always.Add(j.cfg.LeavingWithin), now)
}

// blocking gives those of holders that must be waited for, and when the next of them stops to block by time alone.
func (j *judge) blocking(holders []Holder, now time.Time) (block []Holder, wake time.Time) {
	j.draining = false
	for _, h := range holders {
		j.proxies[h.Stream] = j.named(h)
		end, bounded := j.blocksUntil(h)
		switch {
		case h.Draining:
			j.draining = true
		case !bounded:
			block = append(block, h)
		case now.Before(end):
			block = append(block, h)
			wake = earlier(wake, end)
		}
	}
	slices.SortFunc(block, func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Address, b.Address), strings.Compare(a.Stream, b.Stream))
	})
	return block, wake
}

// blocksUntil gives when h stops to block by time alone, if it ever does.
func (j *judge) blocksUntil(h Holder) (end time.Time, bounded bool) {
	if !h.Ended.IsZero() {
		end = h.Ended.Add(j.cfg.ProxyLostAfter)
	} else if h.Fresh {
		end = h.Since.Add(j.cfg.FreshFor)
	}
	if j.req.IgnoreSilent > 0 && !h.Silent.IsZero() {
		end = earlier(end, h.Silent.Add(time.Duration(j.req.IgnoreSilent)))
	}
	return end, !end.IsZero()
}

// knows reports whether the replica has everything that the evidence stands on.
func (j *judge) knows(m Moment, floor endpoint.Version) bool {
	for at, v := range j.evidence {
		if v.After(floor) && v.After(m.Version(at.key, at.slice)) {
			return false
		}
	}
	return true
}

// answer puts v into words.
func (j *judge) answer(v verdict, now time.Time) Answer {
	a := Answer{
		Drained: v.drained, Reason: v.reason, Missing: v.missing, Mode: ModeRemoved,
		Proxies:  slices.SortedFunc(maps.Values(j.proxies), compareProxies),
		Services: slices.SortedFunc(maps.Keys(j.services), compareServices),
	}
	if j.draining {
		a.Mode = ModeDraining
	}
	// Lists are never null: the JSON is read by shells, too.
	a.Proxies, a.Missing, a.Services = list(a.Proxies), list(a.Missing), list(a.Services)
	seenAt := j.seenAt
	if seenAt.IsZero() {
		seenAt = now
	}
	a.WaitedMS = Waited{seenAt.Sub(j.began).Milliseconds(), now.Sub(seenAt).Milliseconds()}
	return a
}

func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func compareProxies(a, b Proxy) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Address, b.Address), a.Since.Compare(b.Since))
}

func compareServices(a, b Service) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service),
		strings.Compare(a.Port, b.Port), cmp.Compare(a.Number, b.Number))
}

// since starts or stops a clock.
func since(clock *time.Time, runs bool, now time.Time) {
	if !runs {
		*clock = time.Time{}
	} else if clock.IsZero() {
		*clock = now
	}
}

// until is final from end on; before, it stands only if the time is up.
func until(r Reason, end, now time.Time) verdict {
	if now.Before(end) {
		return verdict{reason: r, wake: end}
	}
	return verdict{done: true, reason: r}
}

// earlier gives the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
