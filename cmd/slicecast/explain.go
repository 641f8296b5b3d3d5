package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
	"github.com/slicecast/slicecast/xdsserver"
)

// explainFlags say what to explain, to whom, and how.
type explainFlags struct {
	cluster, namespace, port  string
	fromCluster, region, zone string
	node, family              string
	failover                  string // of the xDS server that is asked about
	output                    string
	bus                       busFlags
}

func (f *explainFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.cluster, "cluster", "", "the service in this cluster only, as under the name SERVICE.NAMESPACE.CLUSTER")
	fs.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the service (default: the only one that has it)")
	fs.StringVar(&f.port, "port", "", "only this port, by name or (target) number")
	fs.StringVar(&f.fromCluster, "from-cluster", "", "cluster of the client (default: a client of no cluster)")
	fs.StringVar(&f.region, "region", "", "region of the client (default: that of its cluster)")
	fs.StringVar(&f.zone, "zone", "", "zone of the client")
	fs.StringVar(&f.node, "node", "", "Kubernetes node of the client")
	fs.StringVar(&f.family, "ip-family", "", "ipv4 or ipv6: what the client asks for (default: both)")
	fs.StringVar(&f.failover, "failover-default", "any", "any, region or none: as the xDS server has it")
	fs.StringVarP(&f.output, "output", "o", "text", "text or json")
	f.bus.add(fs)
}

// view gives the class of clients that the flags describe.
func (f *explainFlags) view() (xdsserver.View, error) {
	v := xdsserver.View{Cluster: f.fromCluster, Region: f.region, Zone: f.zone, Node: f.node, Family: xdsserver.ParseFamily(f.family)}
	switch {
	case f.output != "text" && f.output != "json":
		return v, usagef("--output %q is neither text nor json", f.output)
	case f.family != "" && v.Family == xdsserver.AnyFamily:
		return v, usagef("--ip-family %q is neither ipv4 nor ipv6", f.family)
	case f.failover != "any" && f.failover != "region" && f.failover != "none":
		return v, usagef("--failover-default %q is not any, region or none", f.failover)
	}
	for flag, value := range map[string]string{"cluster": f.cluster, "namespace": f.namespace, "from-cluster": f.fromCluster, "port": f.port} {
		if value != "" && !endpoint.IsLabel(value) {
			return v, usagef("--%s %q is not a DNS label", flag, value)
		}
	}
	return v, nil
}

func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain SERVICE[.NAMESPACE][.CLUSTER]",
		Short: "Say of each address of a service whether clients use it, and why",
		Long: "Say of each address of a service whether clients use it, by which rule, from which slice, and since when.\n" +
			"It decides as the xDS server does, from what the bus holds; what a drain gate has promised is known to the xDS replica alone.\n" +
			"CHANGED is when the conditions of the address last changed in its slice, or a time that this was not after.",
		Example: "  slicecast explain web\n  slicecast explain web.shop --port http --from-cluster east --zone eu-1a\n  slicecast explain web.shop.west -o json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			view, err := f.view()
			if err != nil {
				return err
			}
			if len(args) != 1 {
				return usagef("want one SERVICE[.NAMESPACE][.CLUSTER], got %q", strings.Join(args, " "))
			}
			filter, err := parseServiceFilter(args)
			if err != nil {
				return err
			}
			filter.cluster = cmp.Or(filter.cluster, f.cluster)
			filter.namespace = cmp.Or(filter.namespace, f.namespace)
			conn, err := f.bus.connectClient(cmd)
			if err != nil {
				return err
			}
			defer conn.Close()
			return explain(cmd, conn, &f, view, filter)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// explain reads the bus and prints what the xDS server decides.
func explain(cmd *cobra.Command, conn *bus.Bus, f *explainFlags, view xdsserver.View, filter serviceFilter) error {
	ctx := cmd.Context()
	states, err := snapshotStates(ctx, conn.States().Follow, "")
	if err != nil {
		return fmt.Errorf("read the states: %w", err)
	}
	mine, err := chooseService(states, filter)
	if err != nil {
		return err
	}
	regions, err := snapshotRegions(ctx, conn.Events().FollowRecords)
	if err != nil {
		return fmt.Errorf("read the clusters' records: %w", err)
	}
	if _, known := regions[view.Cluster]; view.Cluster != "" && !known {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "note: the bus knows no cluster %s\n", view.Cluster)
	}
	key := mine[0].Key
	past, err := readPast(ctx, conn.History().Replay, bus.HistoryQuery{Cluster: filter.cluster, Namespace: key.Namespace, Service: key.Service})
	if err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "note: times are those of slices: %v\n", err)
	}
	svc := xdsserver.Service{States: mine, Regions: regions, Failover: f.failover}
	name := xdsserver.Name{Service: key.Service, Namespace: key.Namespace, Cluster: filter.cluster}
	report, err := newExplanation(svc, view, name, f.port, past)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return report.printJSON(cmd.OutOrStdout())
	}
	return report.printText(cmd.OutOrStdout())
}

// chooseService gives the States of the one service that the filter means, in all clusters: the client's own may decide
// even for one that is not shown.
func chooseService(states []endpoint.State, filter serviceFilter) ([]endpoint.State, error) {
	byNamespace := map[string][]endpoint.State{}
	for _, st := range states {
		if st.Key.Service == filter.service {
			byNamespace[st.Key.Namespace] = append(byNamespace[st.Key.Namespace], st)
		}
	}
	namespaces := slices.Sorted(maps.Keys(byNamespace))
	namespace := filter.namespace
	switch {
	case len(namespaces) == 0:
		return nil, fmt.Errorf("the bus has no service %s%s", filter.service, similar(states, filter.service))
	case namespace == "" && len(namespaces) > 1:
		return nil, fmt.Errorf("service %s is in %d namespaces, name one with -n: %s", filter.service, len(namespaces), listed(namespaces))
	case namespace == "":
		namespace = namespaces[0]
	}
	mine := byNamespace[namespace]
	if len(mine) == 0 {
		return nil, fmt.Errorf("namespace %s has no service %s; it is in %s", namespace, filter.service, listed(namespaces))
	}
	slices.SortFunc(mine, func(a, b endpoint.State) int { return a.Key.Compare(b.Key) })
	if filter.cluster != "" && !slices.ContainsFunc(mine, func(st endpoint.State) bool { return st.Key.Cluster == filter.cluster }) {
		var clusters []string
		for _, st := range mine {
			clusters = append(clusters, st.Key.Cluster)
		}
		return nil, fmt.Errorf("cluster %s has no service %s.%s; it is in %s", filter.cluster, filter.service, namespace, listed(clusters))
	}
	return mine, nil
}

// similar names services that the user may have meant.
func similar(states []endpoint.State, service string) string {
	near := map[string]bool{}
	for _, st := range states {
		if other := st.Key.Service; strings.Contains(other, service) || strings.Contains(service, other) {
			near[other+"."+st.Key.Namespace] = true
		}
	}
	if len(near) == 0 {
		return ""
	}
	return "; it has " + listed(slices.Sorted(maps.Keys(near)))
}

// listed joins a few names.
func listed(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// snapshotRegions reads the region of every cluster that the bus knows, "" where it has none.
func snapshotRegions(ctx context.Context, follow func(context.Context, func(ledger.Notice) error) error) (map[string]string, error) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	regions, complete := map[string]string{}, false
	err := follow(ctx, func(n ledger.Notice) error {
		switch n.Kind {
		case ledger.Recorded:
			regions[n.Cluster] = n.Record.Region
		case ledger.Complete:
			complete = true
			done()
		}
		return nil
	})
	if err == nil && !complete {
		err = ctx.Err()
	}
	return regions, err
}
