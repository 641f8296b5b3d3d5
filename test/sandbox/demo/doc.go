// Package demo is the two-minute proof: a rolling restart under constant load in three acts, side by side.
//
//	(a) an imitation of what the reports describe: no conditions, an address leaves when its slice drops it, changes gathered 1 s
//	(b) slicecast, pods without a preStop hook
//	(c) slicecast, pods whose preStop is the drain gate
//
// The pods' program is the same in all three and has no shutdown code: it dies at SIGTERM. Load, Envoy and workload are the same.
//
// Guarantees: Run returns an error when act (c) lost a request, and when the other two together lost none, because then nothing
// was proven. It asks nothing, and leaves nothing behind.
package demo
