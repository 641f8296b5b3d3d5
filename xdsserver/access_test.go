package xdsserver

import (
	"strings"
	"testing"
)

func TestAClientSeesWhatTheRulesOfItsIdentitiesGrantTogether(t *testing.T) {
	a, err := NewAccess([]AccessRule{
		{Identity: "spiffe://example.org/ns/*/sa/proxy", Namespaces: []string{"shop", "team-*"}, Clusters: []string{"ca"}},
		{Identity: "edge.example.org", Namespaces: []string{"*"}, Clusters: []string{"cb"}},
		{Identity: "*", Namespaces: []string{"public"}, Clusters: []string{"*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const proxy, edge = "spiffe://example.org/ns/web/sa/proxy", "edge.example.org"
	tests := []struct {
		identities         []string
		namespace, cluster string
		want               bool
	}{
		{[]string{proxy}, "shop", "ca", true},
		{[]string{proxy}, "team-a", "ca", true},
		{[]string{proxy}, "shop", "cb", false},
		{[]string{proxy}, "other", "ca", false},
		{[]string{proxy}, "public", "cz", true},
		{[]string{proxy, edge}, "other", "cb", true},
		{[]string{proxy, edge}, "shop", "ca", true},
		{[]string{proxy, edge}, "other", "ca", false},
		{[]string{"spiffe://example.org/ns/web/x/sa/proxy"}, "shop", "ca", false},
		{[]string{"spiffe://example.com/ns/web/sa/proxy"}, "shop", "ca", false},
		{[]string{"anything"}, "public", "ca", true},
	}
	for _, tt := range tests {
		if got := a.Scope(tt.identities).Sees(tt.namespace, tt.cluster); got != tt.want {
			t.Errorf("%q sees %s of %s: got %v, want %v", tt.identities, tt.namespace, tt.cluster, got, tt.want)
		}
	}
}

func TestScopesOfTheSameRulesAreOne(t *testing.T) {
	a, err := NewAccess([]AccessRule{{Identity: "a*", Namespaces: []string{"x"}, Clusters: []string{"*"}}})
	if err != nil {
		t.Fatal(err)
	}
	if a.Scope([]string{"a1"}) != a.Scope([]string{"b", "a2"}) {
		t.Error("two clients that the same rules match have two scopes")
	}
	if a.Scope([]string{"a1"}) == a.Scope([]string{"b"}) {
		t.Error("a client that no rule matches has the scope of one that some match")
	}
}

func TestOnlyTheZeroScopeSeesEverything(t *testing.T) {
	none, err := NewAccess(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !(Scope{}).Sees("x", "c") {
		t.Error("without rules nothing is seen")
	}
	if none.Scope([]string{"a"}).Sees("x", "c") {
		t.Error("rules that grant nothing let a client see something")
	}
}

func TestAWrongRuleIsNamedByItsPlace(t *testing.T) {
	good := AccessRule{Identity: "*", Namespaces: []string{"*"}, Clusters: []string{"*"}}
	tests := []struct {
		name string
		rule AccessRule
		want string
	}{
		{"no identity", AccessRule{Namespaces: []string{"*"}, Clusters: []string{"*"}}, "names no identity"},
		{"no namespaces", AccessRule{Identity: "*", Clusters: []string{"*"}}, "names no namespaces"},
		{"no clusters", AccessRule{Identity: "*", Namespaces: []string{"*"}}, "names no clusters"},
		{"bad pattern", AccessRule{Identity: "[", Namespaces: []string{"*"}, Clusters: []string{"*"}}, `"["`},
		{"empty pattern", AccessRule{Identity: "*", Namespaces: []string{""}, Clusters: []string{"*"}}, `""`},
	}
	for _, tt := range tests {
		_, err := NewAccess([]AccessRule{good, tt.rule})
		if err == nil || !strings.Contains(err.Error(), "access rule 2") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want rule 2 and %q in it", tt.name, err, tt.want)
		}
	}
}
