// Package drainwait is the preStop client of the drain gate: it returns when no proxy will choose the pod any more and
// no request is in flight on it, or when its budget is used up.
//
//	ask a drain gate --drained--> settle --> take the pod's inbound connections --> wait until they are done
//
// Guarantees:
//
//   - Run never takes longer than the budget: Timeout, cut to Grace minus Reserve, because the kubelet takes the time
//     of a preStop out of the pod's grace period. That holds with the gate gone, hanging or answering garbage too.
//   - Main gives exit code 0 in every outcome, and says the outcome in one line: a preStop must never be in the way.
//   - What is unknown counts as not done, until the budget is used up.
//   - No privilege is needed: the containers of a pod share its network namespace, and the kernel shows its sockets to
//     everyone in it.
//
// What it does not do: it does not stop the app, close a connection or refuse one, and it does not know of requests
// but by what the kernel tells of connections: on a connection that carries several requests at once, or a response
// that pauses for longer than Idle, "done" is a guess. A proxy that was told to drop the pod closes the connection
// when its last request ends, and then it is none.
package drainwait
