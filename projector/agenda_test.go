package projector

import (
	"slices"
	"testing"
	"time"
)

func TestTheAgendaRingsInOrder(t *testing.T) {
	var a agenda
	now := time.Unix(0, 0)
	for _, s := range []int{5, 1, 4, 2, 3} {
		a.add(alarm{at: now.Add(time.Duration(s) * time.Second)})
	}
	if d := a.next(now); d != time.Second {
		t.Errorf("next in %s, want 1 s", d)
	}
	var got []int64
	for {
		al, due := a.due(now.Add(4 * time.Second))
		if !due {
			break
		}
		got = append(got, al.at.Unix())
	}
	if !slices.Equal(got, []int64{1, 2, 3, 4}) || a.next(now.Add(time.Hour)) != 0 {
		t.Errorf("rang %v, want 1 2 3 4 with one overdue left", got)
	}
}
