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
// What an address is worth is decided by one function (judge); Assign makes resources of its verdicts, and Explain tells
// them with the rule of each. In this order:
//
//   - Reach (D19). Clusters that the client does not fail over to are out. Priority 0 is the client's own cluster, then
//     its region, then the rest; a client of no cluster, and a name that is pinned to a cluster, have all at 0. How far
//     is said by the label slicecast.io/failover in the client's own cluster, else in the smallest cluster name that has
//     slices of the service, else by the server's default.
//   - Family (D13), where the client asked for one.
//   - Who speaks (D12). The newest slice of a pod, in one cluster and family, speaks for it; else, of those at one
//     address and port, the more usable one, then the smaller cluster name, the newer slice, the smaller slice name.
//   - Readiness (R1 to R3, D10), family by family: the ready ones; only if there is none in reach, those that serve and
//     terminate.
//   - Hints (R8), family by family, over the ready endpoints of the client's own cluster: those for nodes where the
//     client names its node, every endpoint has one and one of them means it; else those for zones likewise; else none.
//     So they fail open over the whole service, and never decide about the fallback.
//   - What terminates while others are ready is left out, or DRAINING where the label slicecast.io/terminating of its own
//     cluster says "drain" (D11). Clusters that are emitted never panic onto such endpoints.
//
// Within a service the slice with the highest version speaks for the labels, cluster by cluster. A value that means
// nothing is as good as none; it is logged once, again when it changes, and counted while it stands.
//
// A pod that has an address in both families is, to a client of both, one endpoint: the IPv4 address, with the IPv6 one as
// an additional address. gRPC and Envoy try it when the first does not connect; a client that does not know the field
// has the IPv4 address, and one that cannot use that asks for ipv6. The gate counts additional addresses as held. Envoy
// (1.40, seen) reads them only when the host is new: until the IPv4 address leaves, it keeps those that came with it.
//
// A service without pods has one slice without ports. Its clusters, listeners and routes stay as they were, with an empty
// assignment, until the service itself goes or another port is there; a replica that started meanwhile does not know them,
// and lets delta clients keep what they hold.
//
// Backpressure: a stream has a window of unacknowledged responses per type and a set of dirty resources; the newest
// content wins, and the writer of the memory never waits for a client. A stream that does not acknowledge, or whose
// send blocks, for longer than the limit is ended and counted.
//
// Memory: a subscription at rest is one bit, so a stream costs what its connection does, and 1.3 kB for 10,000 names; only
// what is under way, rejected, or not there has more. Names that a SotW client repeats are compared and not decoded.
//
// With several replicas (Config.Replica) each is registered on the bus before it listens and until its streams have ended,
// and writes its streams to the list of proxies: a client is sent its first assignment once the bus knows of it (or takes
// nothing, or after a bound), and the list says when a client has acknowledged all it wanted, and when its stream has
// ended. The streams of a replica whose registration has lapsed are orphans to the others, until the same node id and peer
// host has acknowledged all it wanted on another stream, as the only one, or the time in which a proxy is lost has passed.
// A replica that did not hear the bus for half the time to live of its registration, while others were registered, ends its
// streams, health first, and takes none until it hears the bus again; alone it keeps them. One that is behind takes no new
// stream while another says that it is current.
//
// Ownership: one mutex guards the memory and the hub, so that the drain gate can look at both in one step (Hub.Look);
// nothing is sent and nobody is waited for while it is held.
package xdsserver
