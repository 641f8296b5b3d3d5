package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kinds of outcome of a request, beside "status N FLAGS" for an answer other than 200, with Envoy's response flags if it was
// Envoy's own answer.
const (
	OK              = "ok"
	ConnectionError = "connection error"
	TimedOut        = "timeout"
	NotSent         = "not sent"
)

// Result is the count of a Driver's requests.
type Result struct {
	// Outcomes counts the requests by kind; their sum is Total.
	Outcomes map[string]int
	// ByPod counts the answers by pod.
	ByPod map[string]int
	// Elapsed is the time during which requests were due.
	Elapsed time.Duration
	// Latencies are the times of the requests that were answered with 200.
	Latencies []time.Duration
}

// outcome is what became of one request.
type outcome struct {
	kind, pod string
	took      time.Duration
}

func (r *Result) add(o outcome) {
	if r.Outcomes == nil {
		r.Outcomes, r.ByPod = make(map[string]int), make(map[string]int)
	}
	r.Outcomes[o.kind]++
	if o.pod != "" {
		r.ByPod[o.pod]++
	}
	if o.kind == OK {
		r.Latencies = append(r.Latencies, o.took)
	}
}

func (r Result) clone() Result {
	r.Outcomes, r.ByPod, r.Latencies = maps.Clone(r.Outcomes), maps.Clone(r.ByPod), slices.Clone(r.Latencies)
	return r
}

// Total is the number of requests that were due.
func (r Result) Total() (n int) {
	for _, count := range r.Outcomes {
		n += count
	}
	return n
}

// Failed is the number of requests that were not answered with 200.
func (r Result) Failed() int { return r.Total() - r.Outcomes[OK] }

// Failures are the kinds of failure with their number, the most frequent first.
func (r Result) Failures() []string {
	kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(r.Outcomes)), func(k string) bool { return k == OK })
	slices.SortStableFunc(kinds, func(a, b string) int { return r.Outcomes[b] - r.Outcomes[a] })
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", r.Outcomes[k], k)
	}
	return kinds
}

// String is one line for people.
func (r Result) String() string {
	text := fmt.Sprintf("%d requests, %d failed", r.Total(), r.Failed())
	if r.Failed() > 0 {
		text += " (" + strings.Join(r.Failures(), ", ") + ")"
	}
	return text
}

// DurationQuantile is the q-quantile, 0 to 1, of durations in any order; 0 if there are none.
func DurationQuantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	ordered := slices.Sorted(slices.Values(all))
	return ordered[min(len(ordered)-1, int(q*float64(len(ordered))))]
}
