package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
)

func addCommonFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.String("config", "", "YAML file that sets flags by name; flags beat environment (SLICECAST_<FLAG>) beats file")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
}

// newLogger makes the logger of a role from the common flags.
func newLogger(cmd *cobra.Command) (*slog.Logger, error) {
	level, format := cmd.Flag("log-level").Value.String(), cmd.Flag("log-format").Value.String()
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q is none of debug, info, warn, error", level)
	}
	return loggerOf(cmd.ErrOrStderr(), l, format)
}

func loggerOf(w io.Writer, level slog.Level, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch strings.ToLower(format) {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, usagef("--log-format %q is neither text nor json", format)
	}
}

// telemetry is what every room is handed to be observed with.
type telemetry struct {
	registry    *prometheus.Registry
	propagation *prometheus.HistogramVec
	log         *slog.Logger
}

// stages of slicecast_propagation_seconds.
var stages = [...]string{"observe", "publish", "project", "push", "ack", "total"}

func newTelemetry(log *slog.Logger) telemetry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	propagation := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "slicecast_propagation_seconds",
		Help: "Time that a change took, by stage: observe (Kubernetes to watcher), publish (to the bus), project (to state), push (to the streams), ack (by a proxy), total (watcher to the last acknowledgement).",
		Buckets: []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75,
			1, 2, 5, 10, 20, 30, 60},
		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 160,
	}, []string{"stage"})
	registry.MustRegister(propagation)
	for _, stage := range stages {
		propagation.WithLabelValues(stage)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicecast_build_info", Help: "Version of this process; always 1."}, []string{"version"})
	registry.MustRegister(build)
	build.WithLabelValues(version).Set(1)
	return telemetry{registry, propagation, log}
}

// serveStatus serves the status listener (--http-listen) until ctx ends.
func (t telemetry) serveStatus(ctx context.Context, address string, roles []readiness) (func() error, error) {
	l, err := listen(ctx, "http-listen", address)
	if err != nil {
		return nil, err
	}
	t.log.Info("status listener open", "address", fmt.Sprint(l.Addr()))
	return func() error { return serveHTTP(ctx, l, statusHandler(t.registry, roles), t.log) }, nil
}
