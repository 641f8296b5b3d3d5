package bus

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one Bus. Every label value is made at 0.
type metrics struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter
	sessions   *prometheus.CounterVec   // stream, reason
	snapshot   *prometheus.HistogramVec // stream
	bad        *prometheus.CounterVec   // kind
	conflicts  *prometheus.CounterVec   // kind
	failed     *prometheus.CounterVec   // kind
	newer      *prometheus.CounterVec   // kind
	reported   *prometheus.CounterVec   // kind
	unreached  *prometheus.CounterVec   // kind
	dropped    prometheus.Counter
	claimsLost prometheus.Counter
}

// Why a session was opened.
const (
	whyStart     = "start"     // the first of a Follow
	whyLost      = "lost"      // the connection was lost
	whyRecreated = "recreated" // the stream is another one, or gone
	whyBack      = "back"      // a sequence at or below one seen
	whyGap       = "gap"       // a message was not delivered
	whyEmptied   = "emptied"   // the last message that was read is no longer in the stream: it was purged
	whyHeartbeat = "heartbeat" // two heartbeats are missing
	whyStuck     = "stuck"     // the server does not deliver what it has
	whyDeleted   = "deleted"   // the server has no such consumer any more
	whyResync    = "resync"    // the reader asked for it
	whyRefresh   = "refresh"   // it was old, and nothing else
	whyFailed    = "failed"    // it could not be opened, or another error
)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "slicecast", Subsystem: "bus", Name: name, Help: help}, labels)
	}
	reconnects := counter("reconnects_total", "Connections to the bus made again.")
	dropped := counter("history_dropped_total", "Copies for the history stream that were dropped or refused.")
	lost := counter("claims_lost_total", "Claims that another process has taken over.")
	m := &metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "slicecast", Subsystem: "bus", Name: "connected", Help: "1 while connected to the bus.",
		}),
		sessions:  counter("sessions_total", "Sessions of readers opened, by reason.", "stream", "reason"),
		bad:       counter("bad_messages_total", "Messages that could not be read, by kind of subject and reason.", "kind", "reason"),
		conflicts: counter("conflicts_total", "Writes that lost their compare-and-set, by kind of subject.", "kind"),
		failed:    counter("publish_errors_total", "Writes that failed, by kind of error.", "kind"),
		newer:     counter("newer_messages_total", "Messages of a newer major version that were left alone, by kind of subject.", "kind"),
		unreached: counter("connect_errors_total", "Connections to the bus that could not be made, by kind of error.", "kind"),
		reported:  counter("async_errors_total", "Errors that the client library reported beside calls, by kind.", "kind"),
		snapshot: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "slicecast", Subsystem: "bus", Name: "snapshot_seconds", Help: "Time from the opening of a session to the end of its snapshot.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), NativeHistogramBucketFactor: 1.1,
		}, []string{"stream"}),
		reconnects: reconnects.WithLabelValues(),
		dropped:    dropped.WithLabelValues(),
		claimsLost: lost.WithLabelValues(),
	}
	for _, stream := range [...]string{eventsStream, stateStream, replicasStream, proxiesStream} {
		m.snapshot.WithLabelValues(stream)
		for _, reason := range [...]string{whyStart, whyLost, whyRecreated, whyBack, whyGap, whyEmptied, whyStuck, whyHeartbeat, whyDeleted, whyResync, whyRefresh, whyFailed} {
			m.sessions.WithLabelValues(stream, reason)
		}
	}
	for _, kind := range [...]string{"event", "state", "checkpoint", "record", "other"} {
		for _, reason := range refusals {
			m.bad.WithLabelValues(kind, reason)
		}
		m.conflicts.WithLabelValues(kind)
		m.newer.WithLabelValues(kind)
	}
	for _, k := range kindsOfErrors {
		m.failed.WithLabelValues(k.kind)
	}
	m.failed.WithLabelValues(kindOther)
	for _, kind := range [...]string{kindPermission, kindSlow, kindOther} {
		m.reported.WithLabelValues(kind)
	}
	for _, kind := range [...]string{troubleRefused, troubleTLS, troubleUnreachable} {
		m.unreached.WithLabelValues(kind)
	}
	for _, c := range [...]prometheus.Collector{
		m.connected, reconnects, m.sessions, m.snapshot, m.bad, m.newer, m.conflicts, m.failed, m.reported, m.unreached, dropped, lost,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the bus: %w", err)
		}
	}
	return m, nil
}

// kindLabel is the label value of a subject.
func kindLabel(text string) string {
	s, err := parseSubject(text)
	if err != nil {
		return "other"
	}
	switch s.kind {
	case eventSubject:
		return "event"
	case stateSubject:
		return "state"
	case checkpointSubject:
		return "checkpoint"
	case recordSubject:
		return "record"
	default:
		return "other"
	}
}

// reportOf is the label value of an error that came beside the calls.
func reportOf(err error) string {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return kindPermission
	case errors.Is(err, nats.ErrSlowConsumer):
		return kindSlow
	default:
		return kindOther
	}
}
