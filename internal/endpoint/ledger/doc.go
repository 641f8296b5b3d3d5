// Package ledger holds the words between the bus and the rooms that read it: notices, checkpoints and cluster
// records, and the Ledger that proves a view complete.
//
// A snapshot that has ended is not a state that is complete: a reader removes what it no longer finds, or calls
// itself in sync, only when its own content agrees with a checkpoint. Ledger keeps the sum of a reader's view of one
// cluster at its last positions in the stream and says whether a Checkpoint agrees with it.
//
// Everything here is pure: values in, values out. A Ledger is owned by one goroutine.
package ledger
