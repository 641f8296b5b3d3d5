// Package projector folds the events of each service into its State.
//
//	EVENTS --notices--> machine (one per cluster, pure) --writes--> STATE
//	                    ^                                             |
//	                    +----------------- notices -------------------+
//
// Guarantees:
//
//   - A State is a pure function of the newest event of each slice (Fold): neither order, repetition nor batching
//     of events matters, so any number of projectors may run, all of them hot, and they write equal States.
//     What is kept from one fold to the next is no part of a State: the order of the slices, the content of each one
//     that has not changed, and what it adds to a sum. Every fold lists all current slices anew; nothing is added to or
//     taken from the one before it. So one changed slice costs its own content and a line per other slice.
//   - A service shrinks by positive evidence only: an event, a tombstone, or a view that a checkpoint has proved
//     complete. Neither a lost bus nor a snapshot that has ended is evidence. What was learned survives sessions.
//   - Nothing is written for a cluster before its view has agreed with a checkpoint for the first time.
//   - An endpoint that moves between two slices of a service is in every State, whichever slice is heard of first.
//   - Every write is a compare-and-set with what this projector knows of the Key, and a lost one is joined with what
//     won: what another projector knew is never overwritten.
//   - Of the replicas that know each other one is the first of a cluster (Rank) and writes at once. The one of rank n
//     writes what it has wanted for n hedges (Config.Hedge, 25 ms) if neither that nor anything newer has appeared on the
//     bus since. So the death of the first costs a hedge per change until the others have heard of it, and in quiet
//     operation each change is written once. Nothing else depends on ranks: replicas that disagree on who lives, or that
//     know nothing of each other, write more often or later, and never other States.
//   - A message that cannot be read takes nothing away and stops nothing but what it hides: the slice stays as memory has
//     it, every other slice and service lives, and a State that cannot be read is written again.
//   - A service whose last slice is gone keeps an empty State: a known, empty service. A State is never removed.
//
// Backpressure: changes of a Key coalesce. While a write of a Key is on its way or waits for its next try, newer
// events only change what the next write says; the newest state wins and none is lost. At most Config.Parallel writes
// are on their way. The followers of both streams wait for the goroutine that owns the machines, which waits for
// nothing.
//
// It does not know what a proxy sees of a State (package xdsserver), what a message looks like (package bus), or
// what the clock says: time delays a write and spaces checkpoints, it never decides what a State is.
package projector
