// Package kubeproxy compares what slicecast makes of EndpointSlices with what kube-proxy makes of them, by kube-proxy's own
// code (k8s.io/kubernetes/pkg/proxy). It is a module of its own, so that nobody else needs that code; it has tests only.
//
// # What is compared
//
// Both sides get the same random histories, step by step. A step is a write to the API server, or a few at once.
//
//	random writes ─┬─ defaults of the API server ── Endpoints- and ServiceChangeTracker ── CategorizeEndpoints ─┐
//	               ├─ watcher.Translate ── projector.Fold ── xdsserver.Assign ─────────────────────────────────┼─ equal?
//	               └─ the rules where slicecast decides otherwise, told a second time ── CategorizeEndpoints ───┘
//
// After each step, for every service that it touched, every name of a port and every View (zones, nodes, families), the
// addresses and ports that get new work must be equal for the Cluster traffic policy.
//
// # Where they differ on purpose
//
// The table decisions lists it all, each with its reason and a predicate. Where no predicate holds, slicecast must equal
// kube-proxy. Everywhere, with or without a predicate, it must equal what the rules predict: a second telling of them in
// this package, which shares no code with slicecast and leaves readiness, fallback and hints to kube-proxy's own code.
// Nothing is skipped.
//
// Every object is legal for an API server that still takes the old spellings of addresses (feature gate
// StrictIPCIDRValidation off, the default up to Kubernetes 1.35): the API server's own validation sees each.
//
// # How to run it
//
//	go test -v -count=1 .                                 # 20,000 steps of seed 1
//	go test -v -count=1 -timeout=0 . -steps=1000000 -seed=7
//
// A difference is shrunk and printed with its seed, the writes as YAML and all three sets.
package kubeproxy
