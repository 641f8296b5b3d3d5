// Pure: subjects of the bus, as values.

package bus

import (
	"fmt"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Subjects begin with these.
const (
	eventsRoot  = "slicecast.v1.events."
	stateRoot   = "slicecast.v1.state."
	historyRoot = "slicecast.v1.history."
	queryRoot   = "slicecast.v1.query."
	replicaRoot = "slicecast.v1.replica."
)

// The last token of subjects of a whole cluster. No DNS label begins with '_', so no namespace is taken for one.
const (
	checkpointToken = "_checkpoint"
	recordToken     = "_cluster"
	staleToken      = "_stale"
)

// onlyPart is the one part that a State has today.
const onlyPart = "0"

// subjectKind says what a subject holds.
type subjectKind uint8

const (
	eventSubject subjectKind = iota + 1
	stateSubject
	historySubject
	checkpointSubject
	recordSubject
	staleSubject
)

// subject is a parsed subject. Which fields are set depends on kind; root is always one of the roots.
type subject struct {
	kind    subjectKind
	root    string
	cluster string       // always set; equals key.Cluster where key is set
	key     endpoint.Key // events, state and history
	slice   string       // events and history: the name as Kubernetes has it
	part    string       // state
}

// eventOf is the subject of one slice below root (events or history).
func eventOf(root string, key endpoint.Key, slice string) string {
	return root + key.Cluster + "." + key.Namespace + "." + key.Service + "." + strings.ReplaceAll(slice, ".", "_")
}

// stateOf is the subject of the State of a Key.
func stateOf(key endpoint.Key) string {
	return stateRoot + key.Cluster + "." + key.Namespace + "." + key.Service + "." + onlyPart
}

// parseSubject reads a subject of the three streams. The error names the text.
func parseSubject(text string) (subject, error) {
	for _, root := range [...]string{eventsRoot, stateRoot, historyRoot} {
		rest, ok := strings.CutPrefix(text, root)
		if !ok {
			continue
		}
		s, err := parseTokens(root, strings.Split(rest, "."))
		if err != nil {
			return subject{}, fmt.Errorf("subject %q: %w", clip(text), err)
		}
		return s, nil
	}
	return subject{}, fmt.Errorf("subject %q is not one of slicecast.v1", clip(text))
}

func parseTokens(root string, tokens []string) (subject, error) {
	s := subject{root: root, cluster: tokens[0]}
	if len(tokens) == 2 {
		return parseClusterWide(s, tokens[1])
	}
	if len(tokens) != 4 {
		return subject{}, fmt.Errorf("%d tokens after %q, want 2 or 4", len(tokens), root)
	}
	s.key = endpoint.Key{Cluster: tokens[0], Namespace: tokens[1], Service: tokens[2]}
	if err := s.key.Valid(); err != nil {
		return subject{}, err
	}
	if root == stateRoot {
		s.kind, s.part = stateSubject, tokens[3]
		if s.part != onlyPart {
			return subject{}, fmt.Errorf("part %q is not known", clip(s.part))
		}
		return s, nil
	}
	s.kind, s.slice = eventSubject, strings.ReplaceAll(tokens[3], "_", ".")
	if root == historyRoot {
		s.kind = historySubject
	}
	if !endpoint.IsSubdomain(s.slice) {
		return subject{}, fmt.Errorf("slice name %q is not a DNS subdomain", clip(s.slice))
	}
	return s, nil
}

func parseClusterWide(s subject, token string) (subject, error) {
	if !endpoint.IsLabel(s.cluster) {
		return subject{}, fmt.Errorf("cluster name %q is not a DNS label", clip(s.cluster))
	}
	switch {
	case token == checkpointToken && s.root != historyRoot:
		s.kind = checkpointSubject
	case token == recordToken && s.root == eventsRoot:
		s.kind = recordSubject
	case token == staleToken && s.root == stateRoot:
		s.kind = staleSubject
	default:
		return subject{}, fmt.Errorf("token %q is not known", clip(token))
	}
	return s, nil
}

// String is the subject as text: what parseSubject reads.
func (s subject) String() string {
	switch s.kind {
	case eventSubject, historySubject:
		return eventOf(s.root, s.key, s.slice)
	case stateSubject:
		return stateOf(s.key)
	case checkpointSubject:
		return s.root + s.cluster + "." + checkpointToken
	case recordSubject:
		return s.root + s.cluster + "." + recordToken
	case staleSubject:
		return s.root + s.cluster + "." + staleToken
	default:
		return ""
	}
}

// filterOf is the subject filter of all below root of one cluster, or of all clusters when cluster is "".
func filterOf(root, cluster string) (string, error) {
	if cluster == "" {
		return root + ">", nil
	}
	if !endpoint.IsLabel(cluster) {
		return "", fmt.Errorf("cluster name %q is not a DNS label", clip(cluster))
	}
	return root + cluster + ".>", nil
}

// querySubject is the subject of a query: a few tokens of letters, digits, '-' and '_'.
func querySubject(name string) (string, error) {
	if !isToken(name, ".") {
		return "", fmt.Errorf("query name %q is not made of letters, digits, '-', '_' and '.'", clip(name))
	}
	return queryRoot + name, nil
}

// replicaSubject is the subject of a query to one process.
func replicaSubject(id, name string) (string, error) {
	if !isToken(id, "") || !isToken(name, ".") {
		return "", fmt.Errorf("query name %q of replica %q is not made of letters, digits, '-', '_' and '.'", clip(name), clip(id))
	}
	return replicaRoot + id + "." + name, nil
}

// isToken reports whether text is made of letters, digits, '-', '_' and the characters of extra, and has no empty
// dot-separated part.
func isToken(text, extra string) bool {
	for part := range strings.SplitSeq(text, ".") {
		if part == "" {
			return false
		}
	}
	for _, c := range []byte(text) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return len(text) <= 255
}

// clip bounds foreign text in an error.
func clip(s string) string {
	const limit = 120
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
