package ledger

import "slices"

// Verdict is what a Ledger says of a Checkpoint.
type Verdict uint8

// The verdicts.
const (
	Early    Verdict = iota + 1 // the view has not reached AsOf, or its snapshot is not done: ask again later
	Passed                      // the view is past AsOf and no longer knows its sum there: wait for the next checkpoint
	Agrees                      // the view at AsOf is what the checkpoint certifies
	Disagree                    // the view at AsOf is something else
)

// historyKept is how many sums at past positions a Ledger keeps.
const historyKept = 512

// Ledger keeps, for one cluster in one session, what each subject adds to the Sum, and the sums at the last positions
// of the stream. Its zero value is not ready; use New.
type Ledger struct {
	entries  map[string]contribution
	count    uint64
	sum      Sum
	seq      uint64 // highest sequence seen
	complete bool
	history  []position // ascending by seq; the first is the state at the end of the snapshot, or later
}

type contribution struct {
	seq   uint64
	count uint64
	sum   Sum
}

// position is the count and sum that held from seq until the next position.
type position struct {
	seq   uint64
	count uint64
	sum   Sum
}

// New gives an empty Ledger, as at the opening of a session.
func New() *Ledger { return &Ledger{entries: map[string]contribution{}} }

// Put records the message of a subject at seq: the slices it holds live now, as count and sum. A message that is
// not newer than the one known of its subject changes nothing.
func (l *Ledger) Put(subject string, seq, count uint64, sum Sum) {
	before, known := l.entries[subject]
	if known && seq <= before.seq {
		return
	}
	l.entries[subject] = contribution{seq, count, sum}
	l.count = l.count - before.count + count
	l.sum = l.sum.Sub(before.sum).Add(sum)
	l.Advance(seq)
	if l.complete {
		l.remember(l.seq)
	}
}

// Advance records that all up to seq has been seen.
func (l *Ledger) Advance(seq uint64) { l.seq = max(l.seq, seq) }

// Complete records that the snapshot, which reached up to seq, is done. From its last message of a slice on, sums
// at positions are known. A second call is Advance.
func (l *Ledger) Complete(seq uint64) {
	defer l.Advance(seq)
	if l.complete {
		return
	}
	l.complete = true
	var last uint64
	for _, e := range l.entries {
		last = max(last, e.seq)
	}
	l.remember(last)
}

// IsComplete reports whether the snapshot is done.
func (l *Ledger) IsComplete() bool { return l.complete }

// Seq is the highest sequence seen.
func (l *Ledger) Seq() uint64 { return l.seq }

// Total is the count and sum of the view now.
func (l *Ledger) Total() (count uint64, sum Sum) { return l.count, l.sum }

// Judge says whether the view at cp.AsOf was what cp certifies.
func (l *Ledger) Judge(cp Checkpoint) Verdict {
	if !l.complete || cp.AsOf > l.seq {
		return Early
	}
	i, exact := slices.BinarySearchFunc(l.history, cp.AsOf, func(p position, seq uint64) int {
		switch {
		case p.seq < seq:
			return -1
		case p.seq > seq:
			return 1
		default:
			return 0
		}
	})
	if !exact {
		i--
	}
	if i < 0 {
		return Passed
	}
	if p := l.history[i]; p.count == cp.Count && p.sum == cp.Sum {
		return Agrees
	}
	return Disagree
}

func (l *Ledger) remember(seq uint64) {
	if n := len(l.history); n > 0 && l.history[n-1].seq == seq {
		l.history[n-1] = position{seq, l.count, l.sum}
		return
	}
	if len(l.history) == historyKept {
		l.history = append(l.history[:0], l.history[historyKept/4:]...)
	}
	l.history = append(l.history, position{seq, l.count, l.sum})
}
