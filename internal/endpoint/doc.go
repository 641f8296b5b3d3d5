// Package endpoint is the one vocabulary of slicecast: the plain values that travel between its rooms.
//
//	EndpointSlice --watcher--> Event --bus--> Event --projector--> State --bus--> State --xdsserver--> Assignment
//
// Guarantees:
//
//   - Every type is a value: no context, clock, log, lock or goroutine, and nothing but the standard library.
//   - Every type states numbered invariants; Valid names the first one that does not hold, and whoever builds a
//     value from foreign data (a Kubernetes object, a message) calls it.
//   - Equal values give equal bytes (Slice.Content) and so equal hashes, on every replica and in every release
//     that has the same ContentVersion.
//
// What it does not do: it decides nothing about Kubernetes objects (package watcher), about messages (package bus)
// or about what a proxy sees (package xdsserver).
package endpoint
