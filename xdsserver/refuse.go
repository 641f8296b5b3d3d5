package xdsserver

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a client may ask for. The names of Kubernetes need a tenth of each; what is above costs memory for nothing.
const (
	maxNameSize = 2 << 10 // bytes of a resource name
	maxNames    = 100_000 // names of one kind that a stream asks for, without those that a wildcard means
	maxNodeText = 1 << 10 // bytes of a node id and of each text that places a client
)

// The causes of refused streams.
const (
	refusedNode  = "node"
	refusedName  = "name"
	refusedNames = "names"
)

func refusedCauses() []string { return []string{refusedNode, refusedName, refusedNames} }

// refusal says why a request cannot be taken: the stream ends with err, and nothing of the request has an effect.
type refusal struct {
	cause string
	err   error // of gRPC, one line
}

func refusef(code codes.Code, cause, format string, args ...any) *refusal {
	return &refusal{cause: cause, err: status.Error(code, fmt.Sprintf(format, args...))}
}

// refuse checks a request of a stream; nil means that it can be taken. Only the stream's own receiver may call it.
func (h *Hub) refuse(st *stream, r request) *refusal {
	if f := refuseNode(r.node); f != nil {
		return f
	}
	for _, names := range [...][]string{r.names, r.subscribe} {
		for _, name := range names {
			if f := refuseName(r.kind, name); f != nil {
				return f
			}
		}
	}
	for name := range r.initial {
		if f := refuseName(r.kind, name); f != nil {
			return f
		}
	}
	if n := h.wouldWant(st, r); n > maxNames {
		return refusef(codes.ResourceExhausted, refusedNames, "%s: a stream asks for %d names, more than %d", r.kind, n, maxNames)
	}
	return nil
}

func refuseNode(n *corev3.Node) *refusal {
	v := viewOf(n)
	for _, text := range [...]struct{ where, value string }{
		{"node.id", n.GetId()}, {"node.locality.region", v.Region}, {"node.locality.zone", v.Zone},
		{"node.metadata " + metadataCluster, v.Cluster}, {"node.metadata " + metadataNode, v.Node},
	} {
		if len(text.value) > maxNodeText {
			return refusef(codes.InvalidArgument, refusedNode, "%s: %d bytes are more than %d", text.where, len(text.value), maxNodeText)
		}
	}
	return nil
}

func refuseName(k kind, name string) *refusal {
	if len(name) <= maxNameSize {
		return nil
	}
	return refusef(codes.InvalidArgument, refusedName, "%s: a name of %d bytes, which begins with %q, is longer than %d", k, len(name), clip(name), maxNameSize)
}

// wouldWant gives how many names a stream asks for at most once r is taken.
func (h *Hub) wouldWant(st *stream, r request) int {
	if !st.delta {
		return len(r.names)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &st.types[r.kind]
	n := len(t.subs) + t.settled + len(r.subscribe) + len(r.initial)
	if n > maxNames && t.wildcard {
		for _, specs := range h.catalog {
			n -= len(specs)
		}
	}
	return n
}
