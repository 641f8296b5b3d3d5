package gate

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// The bounds of Request.Timeout.
const (
	DefaultTimeout = 15 * time.Second
	MaxTimeout     = 10 * time.Minute
)

// Request is the question whether a pod may stop. Its JSON form is the body of the query "drain" on the bus.
//
// Invariants: UID or IP is set; Cluster, Namespace and Pod are names or empty; Timeout is in 0..MaxTimeout.
type Request struct {
	Cluster      string   `json:"cluster,omitempty"` // may be empty only while the bus knows one cluster
	Namespace    string   `json:"namespace,omitempty"`
	Pod          string   `json:"pod,omitempty"`
	UID          string   `json:"uid,omitempty"`
	IP           string   `json:"ip,omitempty"`            // the pod's addresses, joined by ','
	Timeout      Duration `json:"timeout,omitempty"`       // bounds the whole wait; 0 means DefaultTimeout
	IgnoreSilent Duration `json:"ignore_silent,omitempty"` // leaves out proxies that owe an answer for so long; 0 leaves out none
	FallbackWait Duration `json:"fallback_wait,omitempty"` // waits so long for a successor; 0 means the gate's own, below 0 not at all
}

// Duration is a time.Duration that is text ("1.5s") in JSON.
type Duration time.Duration

// MarshalText gives the text that time.ParseDuration reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// requestOf reads the parameters of GET /v1/drain. The error names the parameter.
func requestOf(query string) (Request, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return Request{}, fmt.Errorf("query: %w", err)
	}
	r := Request{
		Cluster: q.Get("cluster"), Namespace: q.Get("namespace"), Pod: q.Get("pod"), UID: q.Get("uid"),
		IP: strings.Join(q["ip"], ","),
	}
	known := []string{"cluster", "namespace", "pod", "uid", "ip", "timeout", "ignore-silent", "fallback-wait"}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, name) {
			return r, fmt.Errorf("unknown parameter %q", clip(name))
		}
		if len(q[name]) > 1 && name != "ip" {
			return r, fmt.Errorf("parameter %s is given %d times", name, len(q[name]))
		}
	}
	for _, p := range []struct {
		name string
		into *Duration
	}{{"timeout", &r.Timeout}, {"ignore-silent", &r.IgnoreSilent}, {"fallback-wait", &r.FallbackWait}} {
		if !q.Has(p.name) {
			continue
		}
		if err := p.into.UnmarshalText([]byte(q.Get(p.name))); err != nil {
			return r, fmt.Errorf("parameter %s: %q is not a duration such as 15s", p.name, clip(q.Get(p.name)))
		}
	}
	if q.Has("timeout") && r.Timeout <= 0 {
		return r, fmt.Errorf("parameter timeout: %s is not above 0", time.Duration(r.Timeout))
	}
	if q.Has("fallback-wait") && r.FallbackWait == 0 {
		r.FallbackWait = -1
	}
	return r, nil
}

// pod checks r and gives the pod that it names, without Cluster if r has none.
func (r Request) pod() (Pod, error) {
	p := Pod{Cluster: r.Cluster, Namespace: r.Namespace, Name: r.Pod, UID: r.UID}
	for _, l := range []struct{ name, text string }{{"cluster", r.Cluster}, {"namespace", r.Namespace}} {
		if l.text != "" && !endpoint.IsLabel(l.text) {
			return p, fmt.Errorf("parameter %s: %q is not a DNS label", l.name, clip(l.text))
		}
	}
	if r.Pod != "" && !endpoint.IsSubdomain(r.Pod) {
		return p, fmt.Errorf("parameter pod: %q is not a pod name", clip(r.Pod))
	}
	if len(r.UID) > 253 || strings.ContainsFunc(r.UID, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return p, fmt.Errorf("parameter uid: %q is not a uid", clip(r.UID))
	}
	if r.Timeout < 0 || r.Timeout > Duration(MaxTimeout) {
		return p, fmt.Errorf("parameter timeout: %s is not between 0 and %s", time.Duration(r.Timeout), MaxTimeout)
	}
	if r.IgnoreSilent < 0 {
		return p, fmt.Errorf("parameter ignore-silent: %s is below 0", time.Duration(r.IgnoreSilent))
	}
	addrs, err := addrsOf(r.IP)
	if err != nil {
		return p, err
	}
	p.Addrs = addrs
	if p.UID == "" && len(p.Addrs) == 0 {
		return p, errors.New("parameter uid or ip is missing: nothing tells which pod is meant")
	}
	return p, nil
}

// maxAddrs bounds the addresses of one pod (it has one per family; networks of its own may add some).
const maxAddrs = 16

func addrsOf(list string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return nil, fmt.Errorf("parameter ip: %q is not an address", clip(text))
		}
		if addrs = append(addrs, a.Unmap()); len(addrs) > maxAddrs {
			return nil, fmt.Errorf("parameter ip: more than %d addresses", maxAddrs)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

// clip bounds foreign text in an error.
func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
