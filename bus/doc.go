// Package bus carries events and states over NATS JetStream. It is the only room that speaks NATS and protobuf; the
// words it hands out are those of internal/endpoint and its ledger.
//
//	watcher --Put--> SLICECAST_EVENTS --Follow--> projector --Put--> SLICECAST_STATE --Follow--> xdsserver
//	                       |                                                (external server, or Embedded: one code path)
//	                       +--copy, best effort--> SLICECAST_HISTORY
//
// Guarantees:
//
//   - Every write is compare-and-set on its own subject. A lost one is a value (Result.Saved is false), not an error,
//     and nothing that was reported as failed is sent later: while not connected a write fails at once.
//   - A reader runs sessions: a snapshot of the last message of each subject, Complete, then what follows, in stream
//     order. A session never resumes. Whatever is doubtful (a lost connection, a missing heartbeat, a recreated stream, a
//     sequence that went back, a gap, a purge) ends it, and so does its age, so that nothing stays wrong for long that no
//     check finds. A new one says Opened.
//   - A connection is made for ever, with what the files of identity hold at that moment. One to a server that was parted
//     from the others of its cluster is left for another one. What is refused (an identity, a permission, a size) is said
//     once for each kind, and counted; its error has a method Refused.
//   - A snapshot that has ended is not a state that is complete; checkpoints say that, and their meaning is the reader's.
//   - Members of a role (Announce, Members) go only by their word or by the end of their time to live. A set is whole: half a
//     snapshot, a lost connection or a lost store makes nobody seem gone who lives. A handler that is slow hears the newest.
//   - Delivery to one handler is by one goroutine. A slow handler slows its own session only: the server keeps the last
//     message of each subject, so what a stuck reader misses is coalesced, never queued without bound.
//   - A foreign or broken message is counted by reason, logged once for each subject, and its content is delivered to
//     nobody. Readers hear that it was refused and where, so that a writer who knows better can write over it, and nobody
//     takes the lack of it for a loss.
//   - A message of a newer major version is counted, and is nobody's: its subject is neither read nor written over.
//   - Copies for history are dropped, and counted, when more than a bounded number is on its way; they never delay a write.
//
// What it does not do: it decides nothing about versions, floors or sums, keeps no content, and retries no write; the
// caller decides again, on what its session and Get say.
package bus
