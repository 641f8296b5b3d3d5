package sandbox

import (
	"bytes"
	"fmt"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Stages are the stages of a Propagation in their order.
func Stages() []string { return []string{"observe", "publish", "project", "push", "ack", "total"} }

// Propagation is the histogram slicecast_propagation_seconds by stage, at one moment.
type Propagation map[string]Histogram

// A Histogram counts durations in buckets.
type Histogram struct {
	// Bounds are the buckets' upper bounds in seconds, ascending; the last one may be +Inf.
	Bounds []float64
	// Counts are the observations up to and including each bound.
	Counts []uint64
}

func parsePropagation(text []byte) (Propagation, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	found := make(Propagation)
	for _, m := range families["slicecast_propagation_seconds"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "stage" {
				found[l.GetValue()] = histogramOf(m.GetHistogram())
			}
		}
	}
	return found, nil
}

// sumOf is the sum of the samples of a counter or gauge over all its labels.
func sumOf(text []byte, name string) (sum float64, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("parse metrics: %w", err)
	}
	family, ok := families[name]
	if !ok {
		return 0, fmt.Errorf("no metric %s", name)
	}
	for _, m := range family.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum, nil
}

func histogramOf(h *dto.Histogram) (out Histogram) {
	for _, b := range h.GetBucket() {
		out.Bounds = append(out.Bounds, b.GetUpperBound())
		out.Counts = append(out.Counts, b.GetCumulativeCount())
	}
	if n := len(out.Bounds); n == 0 || !math.IsInf(out.Bounds[n-1], 1) {
		out.Bounds = append(out.Bounds, math.Inf(1))
		out.Counts = append(out.Counts, h.GetSampleCount())
	}
	return out
}

// Since is what was observed after an earlier Propagation of the same process.
func (p Propagation) Since(before Propagation) Propagation {
	out := make(Propagation)
	for stage, h := range p {
		d := Histogram{Bounds: h.Bounds, Counts: append([]uint64(nil), h.Counts...)}
		if b, ok := before[stage]; ok && len(b.Counts) == len(d.Counts) {
			for i := range d.Counts {
				d.Counts[i] -= b.Counts[i]
			}
		}
		out[stage] = d
	}
	return out
}

// Count is the number of observations.
func (h Histogram) Count() uint64 {
	if len(h.Counts) == 0 {
		return 0
	}
	return h.Counts[len(h.Counts)-1]
}

// Quantile estimates the q-quantile, 0 to 1, by a straight line inside its bucket; 1 gives the upper bound of the highest bucket
// in use. Above the last finite bound that bound is given. It is 0 without observations.
func (h Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := q * float64(total)
	var lower float64
	var below uint64
	for i, bound := range h.Bounds {
		if n := h.Counts[i]; float64(n) >= rank && n > below {
			if math.IsInf(bound, 1) {
				return seconds(lower)
			}
			return seconds(lower + (bound-lower)*(rank-float64(below))/float64(n-below))
		}
		lower, below = bound, h.Counts[i]
	}
	return seconds(lower)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
