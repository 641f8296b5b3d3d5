// Package xdsserver is the edge out of slicecast: the only room that speaks Envoy and gRPC.
//
//	State --Store--> memory --Assign--> Assignment --encode--> resource --Hub--> streams (ADS, EDS, CDS; SotW and delta)
//
// Guarantees:
//
//   - Assign, the encoder and the names are pure: equal States give equal bytes and equal resource versions on every
//     replica, whatever the order in which the States came.
//   - What a stream is sent only ever shrinks by positive evidence: the memory survives sessions of the bus, and a
//     slice leaves it only by an event, or when a checkpoint certifies that it is not there.
//   - It listens only once it is in sync with every expected cluster, or after the start timeout with what the bus
//     holds. The first answer of a stream waits until all that the bus held when it asked has been applied.
//   - One change costs the streams that subscribed to it. A resource is encoded once per View that has a subscriber.
//   - Every request is answered as the xDS protocol asks: first requests, repeated subscriptions, unknown names (an
//     empty assignment, a removed cluster), an assignment again after its cluster. A rejected version is not sent
//     again until its content changes.
//
// Backpressure: a stream has a window of unacknowledged responses per type and a set of dirty resources; the newest
// content wins, and the writer of the memory never waits for a client. A stream that does not acknowledge, or whose
// send blocks, for longer than the limit is ended and counted.
//
// Ownership: one mutex guards the memory and the hub, so that the drain gate can look at both in one step (Hub.Look);
// nothing is sent and nobody is waited for while it is held.
package xdsserver
