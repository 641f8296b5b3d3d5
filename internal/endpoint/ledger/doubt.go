package ledger

// A view that has missed a message disagrees with its checkpoints, but so does the view of a reader that is merely
// late: the bus keeps the last message of each subject, so a message that has been replaced before it was read is never
// read, and the sums between the two are not those of the writer. The message that replaced it is still to come, so
// two checkpoints in a row that disagree, with no change after the first of them, prove a loss. Under constant
// change there is no such proof, and many in a row have to do. One alone may be the fault of its writer.
const (
	disagreeInQuiet  = 2
	disagreeInChange = 8
)

// Doubt decides when checkpoints that disagree with a view mean that the view has lost something. Its zero value is
// that of a new session.
type Doubt struct {
	changed   uint64 // sequence of the last change
	disagreed int    // checkpoints that disagreed since the last one that agreed
	inQuiet   int    // those of them with no change since the first
	since     uint64 // position of the first of them
}

// Changed notes a message that changed the view.
func (d *Doubt) Changed(seq uint64) { d.changed = max(d.changed, seq) }

// Take notes the verdict on cp, once for each checkpoint.
func (d *Doubt) Take(v Verdict, cp Checkpoint) {
	switch v {
	case Agrees:
		d.disagreed, d.inQuiet = 0, 0
	case Disagree:
		d.disagreed++
		if d.inQuiet == 0 || d.changed > d.since {
			d.inQuiet, d.since = 0, cp.AsOf
		}
		d.inQuiet++
	}
}

// Lost reports whether the view has been found wrong and a new session is due.
func (d *Doubt) Lost() bool { return d.inQuiet >= disagreeInQuiet || d.disagreed >= disagreeInChange }
