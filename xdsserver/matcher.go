// Pure: values in, values out.

package xdsserver

import (
	"regexp"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The bounds of node matchers: how many of them, and the length of a regular expression.
const (
	maxMatchers = 100
	maxPattern  = 1 << 10
)

// nodeMatcher reports whether a node id is meant by one of the matchers; none of them mean every node. It knows
// matchers of the node id only: of metadata a replica keeps what places a client, and to leave a condition out would show
// more than was asked for. The error is a gRPC status.
func nodeMatcher(matchers []*matcherv3.NodeMatcher) (func(id string) bool, error) {
	if len(matchers) > maxMatchers {
		return nil, status.Errorf(codes.InvalidArgument, "%d node_matchers are more than %d", len(matchers), maxMatchers)
	}
	var list []func(string) bool
	for i, m := range matchers {
		if len(m.GetNodeMetadatas()) > 0 {
			return nil, status.Errorf(codes.Unimplemented, "node_matchers[%d]: node_metadatas are not supported, node_id is", i)
		}
		if m.GetNodeId() == nil {
			return func(string) bool { return true }, nil
		}
		match, err := stringMatcher(m.GetNodeId())
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "node_matchers[%d]: node_id: %s", i, status.Convert(err).Message())
		}
		list = append(list, match)
	}
	return func(id string) bool {
		for _, match := range list {
			if match(id) {
				return true
			}
		}
		return len(list) == 0
	}, nil
}

func stringMatcher(m *matcherv3.StringMatcher) (func(string) bool, error) {
	compare := func(f func(text, with string) bool, with string) func(string) bool {
		if m.GetIgnoreCase() {
			with = strings.ToLower(with)
			return func(text string) bool { return f(strings.ToLower(text), with) }
		}
		return func(text string) bool { return f(text, with) }
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return compare(func(a, b string) bool { return a == b }, p.Exact), nil
	case *matcherv3.StringMatcher_Prefix:
		return compare(strings.HasPrefix, p.Prefix), nil
	case *matcherv3.StringMatcher_Suffix:
		return compare(strings.HasSuffix, p.Suffix), nil
	case *matcherv3.StringMatcher_Contains:
		return compare(strings.Contains, p.Contains), nil
	case *matcherv3.StringMatcher_SafeRegex:
		text := p.SafeRegex.GetRegex()
		if len(text) > maxPattern {
			return nil, status.Errorf(codes.InvalidArgument, "a regular expression of %d bytes is longer than %d", len(text), maxPattern)
		}
		re, err := regexp.Compile(`\A(?:` + text + `)\z`) // The whole id, as Envoy has it.
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%q is not a regular expression", clip(text))
		}
		return re.MatchString, nil
	default:
		return nil, status.Error(codes.InvalidArgument, "the kind of match is not supported")
	}
}
