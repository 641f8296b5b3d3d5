package ledger

import "testing"

func TestTwoDisagreementsInQuietMeanALoss(t *testing.T) {
	var d Doubt
	d.Changed(5)
	d.Take(Disagree, Checkpoint{AsOf: 5})
	if d.Lost() {
		t.Error("one alone may be the fault of its writer")
	}
	d.Take(Disagree, Checkpoint{AsOf: 6})
	if !d.Lost() {
		t.Error("two with no change between them are a loss")
	}
}

func TestALateReaderIsNotTakenForOneThatLostSomething(t *testing.T) {
	var d Doubt
	for seq := uint64(1); seq < disagreeInChange; seq++ {
		d.Changed(2 * seq)
		d.Take(Disagree, Checkpoint{AsOf: 2*seq - 1})
		if d.Lost() {
			t.Fatalf("lost after %d disagreements with changes between them", seq)
		}
	}
	d.Take(Agrees, Checkpoint{})
	d.Changed(100)
	d.Take(Disagree, Checkpoint{AsOf: 99})
	if d.Lost() {
		t.Error("an agreement clears the doubt")
	}
}

func TestManyDisagreementsUnderConstantChangeMeanALoss(t *testing.T) {
	var d Doubt
	for seq := uint64(1); seq <= disagreeInChange; seq++ {
		d.Changed(2 * seq)
		d.Take(Disagree, Checkpoint{AsOf: 2*seq - 1})
	}
	if !d.Lost() {
		t.Errorf("%d in a row are not taken for a loss", disagreeInChange)
	}
}
