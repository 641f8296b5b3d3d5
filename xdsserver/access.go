// Pure: values in, values out.

package xdsserver

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// AccessRule lets the clients of some identities see some namespaces of some clusters.
type AccessRule struct {
	// Identity is a pattern for the SPIFFE ID or another subject alternative name (URI, DNS name, e-mail, IP address)
	// of the client's certificate, as path.Match has it: '*' stands for anything but '/'. "*" alone is every client
	// that has shown a certificate.
	Identity string
	// Namespaces and Clusters are patterns too, at least one of each; "*" is all.
	Namespaces []string
	Clusters   []string
}

// valid says what is wrong with a rule.
func (r AccessRule) valid() error {
	switch {
	case r.Identity == "":
		return errors.New("it names no identity")
	case len(r.Namespaces) == 0:
		return errors.New(`it names no namespaces ("*" is all)`)
	case len(r.Clusters) == 0:
		return errors.New(`it names no clusters ("*" is all)`)
	}
	for _, p := range slices.Concat([]string{r.Identity}, r.Namespaces, r.Clusters) {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%q is not a pattern", clip(p))
		}
	}
	return nil
}

// Access says what each client may see. What no rule grants looks as if it were not there. It never changes.
type Access struct{ rules []AccessRule }

// NewAccess checks the rules. The error names the first wrong one by its place, from 1. No rules grant nothing.
func NewAccess(rules []AccessRule) (*Access, error) {
	for i, r := range rules {
		if err := r.valid(); err != nil {
			return nil, fmt.Errorf("access rule %d: %w", i+1, err)
		}
	}
	if len(rules) > maxRules {
		return nil, fmt.Errorf("%d access rules are more than %d", len(rules), maxRules)
	}
	return &Access{rules: slices.Clone(rules)}, nil
}

// maxRules bounds how many rules there may be, so that the place of one fits a rune of a Scope.
const maxRules = 10_000

// Scope gives what a client of these identities may see: the union of the rules that match one of them.
func (a *Access) Scope(identities []string) Scope {
	var set []rune
	for i, r := range a.rules {
		if slices.ContainsFunc(identities, func(id string) bool { return r.Identity == "*" || matches(r.Identity, id) }) {
			set = append(set, rune(i))
		}
	}
	return Scope{access: a, set: string(set)}
}

// Scope is what one client may see. It is comparable: clients that the same rules match have the same Scope. The zero
// Scope sees everything.
type Scope struct {
	access *Access
	set    string // the places of the rules that match
}

// within gives svc without what scope does not see.
func (svc Service) within(scope Scope) Service {
	if scope.access != nil {
		hidden := func(st endpoint.State) bool { return !scope.Sees(st.Key.Namespace, st.Key.Cluster) }
		svc.States = slices.DeleteFunc(slices.Clone(svc.States), hidden)
	}
	return svc
}

// Sees reports whether a service of that namespace in that cluster may be seen.
func (s Scope) Sees(namespace, cluster string) bool {
	if s.access == nil {
		return true
	}
	for _, i := range s.set {
		r := &s.access.rules[i]
		if matchesAny(r.Namespaces, namespace) && matchesAny(r.Clusters, cluster) {
			return true
		}
	}
	return false
}

func matchesAny(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, text) })
}

// matches is path.Match with a pattern that was checked before.
func matches(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil
}

// seesAll reports whether everything may be seen: there are no rules, or one that grants all namespaces of all clusters.
func (s Scope) seesAll() bool {
	if s.access == nil {
		return true
	}
	for _, i := range s.set {
		r := &s.access.rules[i]
		if slices.Contains(r.Namespaces, "*") && slices.Contains(r.Clusters, "*") {
			return true
		}
	}
	return false
}
