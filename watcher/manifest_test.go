package watcher

import (
	"strings"
	"testing"
)

const cartYAML = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: cart-1
  namespace: shop
  uid: ignored
  resourceVersion: "7"
  labels:
    kubernetes.io/service-name: cart
addressType: IPv4
ports:
- name: http
  port: 8080
endpoints:
- addresses: [10.0.0.1]
  conditions: {ready: true}
`

func named(name string) string { return strings.Replace(cartYAML, "cart-1", name, 1) }

const cartJSON = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"json-1"},"addressType":"IPv4","endpoints":[]}`

func TestManifestsOfEveryShapeAreRead(t *testing.T) {
	indent := func(s string) string {
		return "- " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
	}
	tests := []struct{ name, file, text, want string }{
		{"one object", "a.yaml", cartYAML, "shop/cart-1"},
		{"many documents", "a.yml", "# head\n---\n" + named("a") + "---\n\n--- # and more\n" + named("b") + "...\n", "shop/a shop/b"},
		{"windows lines", "a.yaml", strings.ReplaceAll(named("a")+"---\n"+named("b"), "\n", "\r\n"), "shop/a shop/b"},
		{"List", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n" + indent(named("a")) + indent(named("b")), "shop/a shop/b"},
		{"EndpointSliceList", "a.yaml", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nmetadata: {}\nitems:\n- metadata: {name: x}\n  addressType: IPv4\n  endpoints: []\n", "default/x"},
		{"empty list", "a.yaml", "apiVersion: v1\nkind: List\nitems: []\n", ""},
		{"JSON", "a.json", cartJSON, "default/json-1"},
		{"JSON texts in a row", "a.json", cartJSON + "\n" + strings.Replace(cartJSON, "json-1", "json-2", 1), "default/json-1 default/json-2"},
		{"JSON in YAML", "a.yaml", cartJSON, "default/json-1"},
		{"FQDN, UDP and no service are not errors", "a.yaml", strings.NewReplacer("addressType: IPv4", "addressType: FQDN", "10.0.0.1", "example.org").Replace(cartYAML), "shop/cart-1"},
	}
	for _, tt := range tests {
		got, err := parseManifest(tt.file, []byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var names []string
		for _, es := range got {
			names = append(names, es.Namespace+"/"+es.Name)
			if es.UID != "" || es.ResourceVersion != placeholder {
				t.Errorf("%s: uid %q, resourceVersion %q", tt.name, es.UID, es.ResourceVersion)
			}
		}
		if s := strings.Join(names, " "); s != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, s, tt.want)
		}
	}
}

func TestABadManifestIsNamedByFileAndLine(t *testing.T) {
	tests := []struct{ name, file, text, want string }{
		{"empty", "a.yaml", "", "a.yaml:1: the file holds no object"},
		{"comments only", "a.yaml", "# nothing\n---\n", "a.yaml:1: the file holds no object"},
		{"broken YAML", "a.yaml", cartYAML + "  bad: [\n", "a.yaml:17: "},
		{"broken YAML in the second document", "a.yaml", cartYAML + "---\na: b\n  c: d\n", "a.yaml:19: "},
		{"duplicate key", "a.yaml", cartYAML + "ports: []\n", `a.yaml:17: `},
		{"unknown field", "a.yaml", strings.Replace(cartYAML, "addresses:", "adresses:", 1), `a.yaml:15: unknown field "endpoints[0].adresses"`},
		{"unknown field in the second document", "a.yaml", named("a") + "---\n# about b\n" + strings.Replace(named("b"), "kubernetes.io/service-name: cart\n", "kubernetes.io/service-name: cart\nspec: {}\n", 1), `a.yaml:28: unknown field "spec"`},
		{"wrong type", "a.yaml", strings.Replace(cartYAML, "8080", "web", 1), "a.yaml:13: "},
		{"other kind", "a.yaml", "\n\n" + strings.Replace(cartYAML, "kind: EndpointSlice", "kind: EndpointSlcie", 1), `a.yaml:3: apiVersion "discovery.k8s.io/v1", kind "EndpointSlcie" is not`},
		{"old API", "a.yaml", strings.Replace(cartYAML, "k8s.io/v1", "k8s.io/v1beta1", 1), `a.yaml:1: apiVersion "discovery.k8s.io/v1beta1"`},
		{"other kind in a list", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- kind: Service\n", `a.yaml:1: item 0: apiVersion "", kind "Service"`},
		{"no name", "a.yaml", strings.Replace(cartYAML, "  name: cart-1\n", "", 1), "a.yaml:1: EndpointSlice without metadata.name"},
		{"bad address", "a.yaml", strings.Replace(cartYAML, "10.0.0.1", "10.0.0.300", 1), `a.yaml:1: EndpointSlice shop/cart-1: address "10.0.0.300" is not a plain IPv4 address`},
		{"twice in one file", "a.yaml", cartYAML + "---\n" + cartYAML, "a.yaml:18: EndpointSlice shop/cart-1 is defined twice"},
		{"content beside a separator", "a.yaml", cartYAML + "--- {a: b}\n", "a.yaml:17: content on the line of a document separator"},
		{"broken JSON", "a.json", "{\n \"a\": 1,\n}", "a.json:3: "},
		{"cut JSON", "a.json", "{\n \"a\": ", "a.json:"},
		{"a scalar", "a.yaml", "hello\n", "a.yaml:1: "},
	}
	for _, tt := range tests {
		got, err := parseManifest(tt.file, []byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %d slices, error %v, want %q", tt.name, len(got), err, tt.want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add("a.yaml", []byte(cartYAML))
	f.Add("a.yaml", []byte("---\n"+cartYAML+"---\n"+named("b")))
	f.Add("a.json", []byte(cartJSON))
	f.Add("a.yaml", []byte("apiVersion: v1\nkind: List\nitems: [{}]"))
	f.Add("a.json", []byte("null"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		got, err := parseManifest(name, data)
		if err != nil {
			if got != nil {
				t.Fatal("slices and an error")
			}
			return
		}
		for _, es := range got {
			sl, skips, err := Translate("prod", 1, es)
			if skips.Refused != "" {
				t.Fatalf("a good file holds what Translate refuses: %s", skips.Refused)
			}
			if err == nil && sl.Valid() != nil {
				t.Fatal(sl.Valid())
			}
		}
	})
}
