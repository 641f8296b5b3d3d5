// Package watcher is the edge in: it brings what one Kubernetes cluster (or a folder of manifests) says of its
// EndpointSlices onto the bus, and keeps it there.
//
//	Source (kube, dir) --Update--> loop (cache, as-of) --Decide--> Put, Tombstone --> EVENTS
//	                                 ^     |                                            |
//	                                 |     +------------ Floor --> Checkpoint --------->+
//	                                 +------ view: headers-only session, for ever ------+
//
// Guarantees:
//
//   - The bus ends with what the source said last of each slice, whatever was lost, repeated, delayed, written by
//     another watcher or rolled back on the way; any number of watchers of one cluster may run.
//   - Nothing is written before both a consistent list and a complete session are there, nor while the source has not
//     been heard from for Config.APIStale, nor for a cluster whose record on the bus names another identity.
//   - Every write is compared before it is sent and is a compare-and-set; one write per slice is on its way.
//   - Losing the source removes nothing. A slice goes only by positive evidence: a deletion that was watched, or a
//     consistent list that does not hold it.
//   - A checkpoint certifies only what the followed session shows at its position, never what is still being written.
//   - A message on the bus that nobody can read is written over, whether its headers are bad or, behind good ones, only its
//     body: the session brings headers alone, so what another process wrote is read once, one message at a time and after
//     all writes.
//   - History of the cluster that went back (an etcd restored from a backup) is proved by a consistent list, then
//     the generation of the record is raised. So it is when more of the cluster is published than before, since readers
//     would take it for stale.
//   - What a lower generation left goes by proof, when what replaces it in its service is on the bus.
//   - Of two releases at work the newer one has the last word at each version, and they do not fight. Two watchers that
//     publish different parts of a cluster do not fight either, and a change of that part removes no more than a fifth
//     of the cluster's slices unless it is confirmed (guard.go).
//
// Translate, Diff, Missing, Decide and Floor are pure. The sources list with resourceVersion unset always, also where
// a reflector would ask for "0". One list and watch covers all slices of the cluster, or each namespace of the extent by
// itself where some are given, and Translate leaves out those without a service name: the two service-name labels cannot
// be or-ed in one selector, two watches would have two as-ofs, and a slice that loses its label must be seen to leave.
//
// Backpressure: changes coalesce per slice (the last state wins and none is lost), at most Config.Parallel writes are
// on their way, so memory is bounded by the number of slices. The goroutine that owns the state never waits for the
// bus or the source; the source waits for it.
//
// What it does not do: it joins no slices into a service (package projector).
package watcher
