package endpointtest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// FormatEndpoint writes an endpoint in the notation of traces.
func FormatEndpoint(e endpoint.Endpoint) string {
	var attrs []string
	for _, a := range [...]struct{ name, text string }{
		{"uid", e.TargetUID}, {"kind", e.TargetKind}, {"target", e.TargetName}, {"node", e.Node}, {"host", e.Hostname},
	} {
		if a.text != "" {
			attrs = append(attrs, a.name+"="+escape(a.text))
		}
	}
	for _, a := range [...]struct{ name, text string }{{"zones", e.ZoneHints}, {"nodes", e.NodeHints}} {
		if a.text != "" {
			attrs = append(attrs, a.name+"="+list(a.text))
		}
	}
	word := fmt.Sprintf("%s[%s]", e.Addr, e.Conditions)
	if e.Zone != "" {
		word += "@" + escape(e.Zone)
	}
	if len(attrs) > 0 {
		word += "{" + strings.Join(attrs, ",") + "}"
	}
	return word
}

// ParseEndpoint reads what FormatEndpoint wrote.
func ParseEndpoint(word string) (endpoint.Endpoint, error) {
	addr, rest, ok := strings.Cut(word, "[")
	conditions, rest, ok2 := strings.Cut(rest, "]")
	if !ok || !ok2 {
		return endpoint.Endpoint{}, fmt.Errorf("endpoint %q is not ADDR[rst]", word)
	}
	var e endpoint.Endpoint
	var err error
	if e.Addr, err = netip.ParseAddr(addr); err != nil {
		return e, fmt.Errorf("endpoint %q: %w", word, err)
	}
	if e.Conditions, err = endpoint.ParseConditions(conditions); err != nil {
		return e, fmt.Errorf("endpoint %q: %w", word, err)
	}
	zone, attrs, some := strings.Cut(rest, "{")
	if zone != "" {
		name, at := strings.CutPrefix(zone, "@")
		if e.Zone, err = unescape(name); err != nil || !at || name == "" {
			return e, fmt.Errorf("endpoint %q has a bad zone", word)
		}
	}
	if some {
		inside, closed := strings.CutSuffix(attrs, "}")
		if !closed {
			return e, fmt.Errorf("endpoint %q lacks its last brace", word)
		}
		for attr := range strings.SplitSeq(inside, ",") {
			if err := setAttribute(&e, attr); err != nil {
				return e, fmt.Errorf("endpoint %q: %w", word, err)
			}
		}
	}
	return e, nil
}

func setAttribute(e *endpoint.Endpoint, attr string) error {
	name, word, _ := strings.Cut(attr, "=")
	read := unescape
	var at *string
	switch name {
	case "uid":
		at = &e.TargetUID
	case "kind":
		at = &e.TargetKind
	case "target":
		at = &e.TargetName
	case "node":
		at = &e.Node
	case "host":
		at = &e.Hostname
	case "zones":
		at, read = &e.ZoneHints, unlist
	case "nodes":
		at, read = &e.NodeHints, unlist
	default:
		return fmt.Errorf("no attribute %q", name)
	}
	text, err := read(word)
	*at = text
	return err
}

// FormatSlice writes a slice, without its Key, in the notation of traces.
func FormatSlice(s endpoint.Slice) string { return formatSlice(s, endpoint.Event{}) }

// formatSlice adds what an event says beside its slice.
func formatSlice(s endpoint.Slice, e endpoint.Event) string {
	words := append([]string{s.Name, "rv=" + version(s.Version)}, sliceOptions(s)...)
	if !e.Previous.IsZero() {
		words = append(words, "prev="+version(e.Previous))
	}
	if len(e.Peers) > 0 {
		peers := make([]string, len(e.Peers))
		for i, p := range e.Peers {
			peers[i] = p.Name + "@" + version(p.Version)
		}
		words = append(words, "peers="+strings.Join(peers, ","))
	}
	if e.Gone {
		return strings.Join(words, " ")
	}
	words = append(words, ports(s.Ports))
	line := strings.Join(words, " ")
	for _, ep := range s.Endpoints {
		line += "  " + FormatEndpoint(ep)
	}
	return line
}

func sliceOptions(s endpoint.Slice) []string {
	var words []string
	for _, o := range [...]struct{ name, text string }{
		{"uid", s.UID}, {"terminating", s.TerminatingPolicy}, {"failover", s.FailoverPolicy},
	} {
		if o.text != "" {
			words = append(words, o.name+"="+escape(o.text))
		}
	}
	if s.Translator != 0 {
		words = append(words, "translator="+strconv.FormatUint(uint64(s.Translator), 10))
	}
	for _, o := range [...]struct {
		name string
		at   time.Time
	}{{"observed", s.Observed}, {"triggered", s.Triggered}} {
		if !o.at.IsZero() {
			words = append(words, o.name+"="+escape(o.at.UTC().Format(time.RFC3339Nano)))
		}
	}
	return words
}

// parseEvent reads SLICE rv=V [OPTION...] and, unless gone, PORTS [ENDPOINT...].
func parseEvent(key endpoint.Key, words []string, gone bool) (endpoint.Event, error) {
	e := endpoint.Event{Slice: endpoint.Slice{Key: key}, Gone: gone}
	if len(words) == 0 {
		return e, fmt.Errorf("no slice is named")
	}
	e.Slice.Name, words = words[0], words[1:]
	for len(words) > 0 && isOption(words[0]) {
		if err := setOption(&e, words[0]); err != nil {
			return e, err
		}
		words = words[1:]
	}
	if gone {
		if len(words) > 0 {
			return e, fmt.Errorf("%q after a slice that is gone", words[0])
		}
		return e, e.Valid()
	}
	if len(words) == 0 {
		return e, fmt.Errorf("no ports: write - for none")
	}
	var err error
	if e.Slice.Ports, err = parsePorts(words[0]); err != nil {
		return e, err
	}
	for _, w := range words[1:] {
		ep, err := ParseEndpoint(w)
		if err != nil {
			return e, err
		}
		e.Slice.Endpoints = append(e.Slice.Endpoints, ep)
	}
	e.Slice = e.Slice.Canonical()
	return e, e.Valid()
}

func isOption(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && !strings.ContainsAny(name, ":[")
}

func setOption(e *endpoint.Event, option string) error {
	name, word, _ := strings.Cut(option, "=")
	s := &e.Slice
	var err error
	switch name {
	case "rv":
		s.Version, err = parseVersion(word)
	case "uid":
		s.UID, err = unescape(word)
	case "terminating":
		s.TerminatingPolicy, err = unescape(word)
	case "failover":
		s.FailoverPolicy, err = unescape(word)
	case "translator":
		var n uint64
		n, err = strconv.ParseUint(word, 10, 32)
		s.Translator = uint32(n)
	case "observed":
		s.Observed, err = parseTime(word)
	case "triggered":
		s.Triggered, err = parseTime(word)
	case "prev":
		e.Previous, err = parseVersion(word)
	case "peers":
		e.Peers, err = parsePeers(word)
	default:
		return fmt.Errorf("no option %q", name)
	}
	if err != nil {
		return fmt.Errorf("option %s: %w", name, err)
	}
	return nil
}

func parsePeers(word string) ([]endpoint.Ref, error) {
	var peers []endpoint.Ref
	for part := range strings.SplitSeq(word, ",") {
		name, v, ok := strings.Cut(part, "@")
		if !ok {
			return nil, fmt.Errorf("peer %q is not SLICE@V", part)
		}
		parsed, err := parseVersion(v)
		if err != nil {
			return nil, err
		}
		peers = append(peers, endpoint.Ref{Name: name, Version: parsed})
	}
	return peers, nil
}

func parseTime(word string) (time.Time, error) {
	text, err := unescape(word)
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	return t.UTC(), err
}
