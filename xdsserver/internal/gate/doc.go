// Package gate is the drain gate of one xDS replica: it answers when no proxy may choose a pod any more.
//
//	preStop --GET /v1/drain--> Gate --Step--> Replica (what is known of the pod, who may hold its address)
//	                             '----Floor--> a watcher (only when the pod is nowhere to be seen)
//
// Guarantees:
//
//   - "drained" is said only of a moment in which, all at once, the pod is known to leave (some slice shows it
//     terminating, or it is absent from everything that the API server had after the question came), no service uses
//     it, and neither an open stream nor one that ended lately may hold its address. In the same moment the replica
//     promises not to choose the pod again.
//   - Absence alone proves nothing: it counts from a floor on that a watcher read after the question came.
//   - An answer comes at the latest when the caller's time is up, whatever else hangs, and says who was missing.
//   - Nothing is polled: a wait sleeps until the replica has changed or the next bound is reached.
//
// Backpressure: a wait costs one goroutine and one look per change; above Config.MaxWaits, or Config.MaxWaitsPerPod
// of one pod, a question is refused (ErrBusy, 429) and counted.
//
// With several replicas (Config.Peers) the gate that was asked asks each registered one, in parallel, until it is clean:
// it knows what the evidence stands on, uses the pod in no service, and no stream of it, nor one of a replica that has
// vanished, may hold the address; it then promises too. When all are clean the registry is read once more: another set is
// asked anew. No answer from a registered replica blocks. A wait that ends without "drained" takes its promises back.
//
// What it does not do: it waits for no connection (that is the pod's own part), and it decides nothing about Kubernetes
// objects.
package gate
