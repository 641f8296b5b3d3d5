package projector

import (
	"container/heap"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// alarm wakes a Key of a machine, or the checkpoint of the machine when the Key is zero.
type alarm struct {
	at  time.Time
	r   *runner
	key endpoint.Key
}

// agenda holds alarms by time.
type agenda struct{ alarms alarms }

func (a *agenda) add(al alarm) { heap.Push(&a.alarms, al) }

// next says how long there is until the first alarm; an hour when there is none.
func (a *agenda) next(now time.Time) time.Duration {
	if len(a.alarms) == 0 {
		return time.Hour
	}
	return max(0, a.alarms[0].at.Sub(now))
}

// due takes the first alarm if its time has come.
func (a *agenda) due(now time.Time) (alarm, bool) {
	if len(a.alarms) == 0 || a.alarms[0].at.After(now) {
		return alarm{}, false
	}
	return heap.Pop(&a.alarms).(alarm), true
}

// alarms is a heap.
type alarms []alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = alarm{}
	*a = old[:len(old)-1]
	return last
}
