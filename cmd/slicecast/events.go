package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// eventsConfig says which events to print and how.
type eventsConfig struct {
	cluster, namespace, service string
	output                      string
	snapshot                    bool          // print what the bus holds first
	since                       time.Duration // replay history from so long ago, 0 for not at all
	sinceTime                   string        // the same, as a time
	last                        int           // replay so many of history, 0 for no limit
	follow                      bool          // go on until interrupted
}

func eventsCommand() *cobra.Command {
	var (
		c    eventsConfig
		nats busFlags
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow the events of the bus, or replay them",
		Long: "Follow the events of the bus: what each EndpointSlice is now, and which addresses changed their conditions.\n" +
			"--current prints what the bus holds first; --since and --last replay what was recorded, a day at most, then follow.\n" +
			"Events that were not recorded show as gaps.",
		Example: "  slicecast events --since 2h --service web\n  slicecast events --last 20 --follow=false -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := c.query(cmd.Flags(), time.Now())
			if err != nil {
				return err
			}
			conn, err := nats.connectClient(cmd)
			if err != nil {
				return err
			}
			defer conn.Close()
			printer := eventPrinter{config: c, out: cmd.OutOrStdout(), live: c.snapshot}
			if query != nil {
				return conn.History().Replay(cmd.Context(), *query, printer.replayed)
			}
			return printer.run(cmd.Context(), conn.Events().Follow)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.cluster, "cluster", "", "only this cluster")
	f.StringVarP(&c.namespace, "namespace", "n", "", "only this namespace")
	f.StringVar(&c.service, "service", "", "only this service")
	f.StringVarP(&c.output, "output", "o", "text", "text or json (one object a line)")
	f.BoolVar(&c.snapshot, "current", false, "print the current content of the bus first")
	f.DurationVar(&c.since, "since", 0, "first replay what was recorded since so long ago, for example 2h")
	f.StringVar(&c.sinceTime, "since-time", "", "first replay what was recorded since a time (RFC 3339)")
	f.IntVar(&c.last, "last", 0, "first replay the last so many that were recorded; with --since, of those")
	f.BoolVarP(&c.follow, "follow", "f", true, "go on with what comes")
	nats.add(f)
	return cmd
}

// query is the part of history to replay, nil for none, or what is wrong with the flags.
func (c *eventsConfig) query(flags *pflag.FlagSet, now time.Time) (*bus.HistoryQuery, error) {
	q := bus.HistoryQuery{Cluster: c.cluster, Namespace: c.namespace, Service: c.service, Last: c.last, Follow: c.follow}
	since, sinceTime, last := flags.Changed("since"), flags.Changed("since-time"), flags.Changed("last")
	replays := since || sinceTime || last
	switch {
	case c.output != "text" && c.output != "json":
		return nil, usagef("--output %q is neither text nor json", c.output)
	case since && sinceTime:
		return nil, usagef("give only one of --since and --since-time")
	case since && c.since <= 0:
		return nil, usagef("--since %s is not above 0", c.since)
	case last && c.last <= 0:
		return nil, usagef("--last %d is not above 0", c.last)
	case replays && c.snapshot:
		return nil, usagef("give either --current or what to replay: --since, --since-time, --last")
	case !c.follow && !replays && !c.snapshot:
		return nil, usagef("--follow=false needs --current, --since, --since-time or --last")
	case since:
		q.Since = now.Add(-c.since)
	case sinceTime:
		var err error
		if q.Since, err = time.Parse(time.RFC3339, c.sinceTime); err != nil {
			return nil, usagef("--since-time: %v", err)
		}
	}
	if !replays {
		return nil, nil
	}
	return &q, nil
}

// eventPrinter prints the events that its config selects, each once: a new session of the bus repeats what is known.
type eventPrinter struct {
	config eventsConfig
	out    io.Writer
	live   bool // print: past the first snapshot, or told to print it
	seen   map[string]endpoint.Version
}

// run prints what the bus holds, when told so, and what comes, when told so.
func (p *eventPrinter) run(ctx context.Context, follow func(context.Context, string, bool, func(ledger.Notice) error) error) error {
	if p.config.follow {
		return follow(ctx, p.config.cluster, false, p.handle)
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	ended := false
	err := follow(ctx, p.config.cluster, false, func(n ledger.Notice) error {
		if ended = ended || n.Kind == ledger.Complete; ended {
			done()
			return nil
		}
		return p.handle(n)
	})
	if err == nil && !ended {
		err = ctx.Err()
	}
	return err
}

// replayed prints an entry of history, and before it the gap that it shows.
func (p *eventPrinter) replayed(e bus.HistoryEntry) error {
	s := &e.Event.Slice
	n := ledger.Notice{Key: s.Key, Slice: s.Name, Version: s.Version, Stored: e.Stored, Event: &e.Event}
	if p.config.output == "json" {
		out := eventJSON(n)
		if e.Gap() {
			out.Missing = e.Missing.String()
		}
		return json.NewEncoder(p.out).Encode(out)
	}
	if e.Gap() {
		if _, err := fmt.Fprintf(p.out, "%s  %s  %s  gap: version %s was not recorded\n", eventTime(n).Format(clockForm), n.Key, n.Slice, e.Missing); err != nil {
			return err
		}
	}
	return p.print(n)
}

func (p *eventPrinter) handle(n ledger.Notice) error {
	switch n.Kind {
	case ledger.Complete:
		p.live = true
	case ledger.Changed:
		if n.Event == nil || !p.selects(n.Key) {
			return nil
		}
		id := n.Key.String() + "/" + n.Slice
		if p.seen == nil {
			p.seen = map[string]endpoint.Version{}
		}
		if p.seen[id] == n.Version {
			return nil
		}
		p.seen[id] = n.Version
		if p.live {
			return p.print(n)
		}
	}
	return nil
}

func (p *eventPrinter) selects(k endpoint.Key) bool {
	return (p.config.namespace == "" || p.config.namespace == k.Namespace) && (p.config.service == "" || p.config.service == k.Service)
}

func (p *eventPrinter) print(n ledger.Notice) error {
	if p.config.output == "json" {
		return json.NewEncoder(p.out).Encode(eventJSON(n))
	}
	_, err := fmt.Fprintln(p.out, eventText(n))
	return err
}

// clockForm is how lines begin.
const clockForm = "15:04:05.000"

// eventText is one line: time, service, slice, version, and what changed, or else all of it.
func eventText(n ledger.Notice) string {
	ev := n.Event
	what := make([]string, 0, len(ev.Transitions)+1)
	for _, t := range ev.Transitions {
		what = append(what, fmt.Sprintf("%s %s->%s", t.Addr, t.Before, t.After))
	}
	switch {
	case ev.Gone:
		what = append([]string{"gone"}, what...)
	case len(what) == 0:
		for _, e := range ev.Slice.Endpoints {
			what = append(what, fmt.Sprintf("%s %s", e.Addr, e.Conditions))
		}
	}
	return fmt.Sprintf("%s  %s  %s  rv=%s  %s",
		eventTime(n).Format(clockForm), n.Key, n.Slice, n.Version, strings.Join(what, ", "))
}

func eventTime(n ledger.Notice) time.Time {
	if t := n.Event.Slice.Observed; !t.IsZero() {
		return t.Local()
	}
	return n.Stored.Local()
}

// jsonEvent is an event as `slicecast events -o json` prints it: a stable form for scripts.
type jsonEvent struct {
	Time        string           `json:"time"`
	Cluster     string           `json:"cluster"`
	Namespace   string           `json:"namespace"`
	Service     string           `json:"service"`
	Slice       string           `json:"slice"`
	Version     string           `json:"version"`
	Previous    string           `json:"previous,omitempty"`
	Missing     string           `json:"missing,omitempty"` // a version before it that was not recorded
	Gone        bool             `json:"gone,omitempty"`
	Ports       []jsonPort       `json:"ports,omitempty"`
	Endpoints   []jsonEndpoint   `json:"endpoints,omitempty"`
	Transitions []jsonTransition `json:"transitions,omitempty"`
}

type jsonPort struct {
	Name   string `json:"name"`
	Number uint16 `json:"number"`
}

type jsonEndpoint struct {
	Address     string `json:"address"`
	Ready       bool   `json:"ready"`
	Serving     bool   `json:"serving"`
	Terminating bool   `json:"terminating"`
	Zone        string `json:"zone,omitempty"`
	Node        string `json:"node,omitempty"`
	Pod         string `json:"pod,omitempty"`
}

type jsonTransition struct {
	Address string `json:"address"`
	Before  string `json:"before"`
	After   string `json:"after"`
}

func eventJSON(n ledger.Notice) jsonEvent {
	ev := n.Event
	out := jsonEvent{
		Time: eventTime(n).UTC().Format(time.RFC3339Nano), Cluster: n.Key.Cluster, Namespace: n.Key.Namespace,
		Service: n.Key.Service, Slice: n.Slice, Version: n.Version.String(), Gone: ev.Gone,
	}
	if !ev.Previous.IsZero() {
		out.Previous = ev.Previous.String()
	}
	for _, p := range ev.Slice.Ports {
		out.Ports = append(out.Ports, jsonPort{p.Name, p.Number})
	}
	for _, e := range ev.Slice.Endpoints {
		out.Endpoints = append(out.Endpoints, endpointJSON(e))
	}
	for _, t := range ev.Transitions {
		out.Transitions = append(out.Transitions, jsonTransition{t.Addr.String(), t.Before.String(), t.After.String()})
	}
	return out
}

func endpointJSON(e endpoint.Endpoint) jsonEndpoint {
	c := e.Conditions
	return jsonEndpoint{
		Address: e.Addr.String(), Ready: c&endpoint.Ready != 0, Serving: c&endpoint.Serving != 0,
		Terminating: c&endpoint.Terminating != 0, Zone: e.Zone, Node: e.Node, Pod: e.TargetName,
	}
}

// snapshotStates reads every State of a cluster ("" for all) once.
func snapshotStates(ctx context.Context, follow func(context.Context, string, func(ledger.Notice) error) error, cluster string) ([]endpoint.State, error) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	var states []endpoint.State
	complete := false
	err := follow(ctx, cluster, func(n ledger.Notice) error {
		switch n.Kind {
		case ledger.Opened:
			states = states[:0]
		case ledger.Changed:
			if !complete && n.State != nil {
				states = append(states, *n.State)
			}
		case ledger.Complete:
			complete = true
			done()
		}
		return nil
	})
	if err == nil && !complete {
		err = ctx.Err()
	}
	return states, err
}
