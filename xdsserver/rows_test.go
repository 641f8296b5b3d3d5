package xdsserver

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

const (
	atOne  = "p0 / w1 10.0.0.1:8080"
	atTwo  = "p0 / w1 10.0.0.2:8080"
	atNine = "p0 / w1 10.0.0.9:8080"

	http2Cluster = "cluster of HTTP/2"
)

// row is a fault that a system of this kind had, by its number in the list of faults.
type row struct {
	what  string
	run   func(t *testing.T, open func(*bench) *subscriber)
	delta bool // it is about delta alone
}

// test runs the row as a client of each protocol that it is about.
func (r row) test(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		r.run(t, func(b *bench) *subscriber { return b.subscriber(t, b.deltaClient()) })
	})
	if !r.delta {
		t.Run("sotw", func(t *testing.T) {
			r.run(t, func(b *bench) *subscriber { return b.subscriber(t, b.sotwClient()) })
		})
	}
}

// rowGroups are those faults that concern the protocol, by kind.
var rowGroups = []map[int]row{clusterRows, nameRows, versionRows, streamRows}

// requiredRows are the faults that must have a row.
var requiredRows = []int{39, 57, 58, 59, 60, 61, 63, 65, 66, 68, 69, 70, 73, 74, 77, 78, 79, 81, 82, 83, 85, 89, 90, 111, 118}

func TestRowsOfTheProtocol(t *testing.T) {
	all := map[int]row{}
	for _, group := range rowGroups {
		maps.Copy(all, group)
	}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		t.Run(fmt.Sprintf("X%03d %s", n, all[n].what), all[n].test)
	}
}

func TestEveryFaultOfTheProtocolHasOneRow(t *testing.T) {
	checkNumbers(t, requiredRows, rowGroups...)
}

// checkNumbers fails unless each number that is required has one row.
func checkNumbers(t *testing.T, required []int, groups ...map[int]row) {
	t.Helper()
	has := map[int]int{}
	for _, group := range groups {
		for n, r := range group {
			has[n]++
			if r.what == "" || r.run == nil {
				t.Errorf("row %d is empty", n)
			}
			if !slices.Contains(required, n) {
				t.Errorf("row %d has a number that means nothing", n)
			}
		}
	}
	for _, n := range required {
		if has[n] != 1 {
			t.Errorf("number %d has %d rows, want one", n, has[n])
		}
	}
}
