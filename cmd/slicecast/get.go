package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func getCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "get", Short: "Read the state on the bus, and the clients of xDS replicas", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(getEndpointsCommand(), getClientsCommand())
	return cmd
}

// serviceFilter selects services by SERVICE[.NAMESPACE[.CLUSTER]]; an empty part selects all.
type serviceFilter struct{ service, namespace, cluster string }

func parseServiceFilter(args []string) (serviceFilter, error) {
	if len(args) == 0 {
		return serviceFilter{}, nil
	}
	parts := strings.Split(args[0], ".")
	if len(args) > 1 || len(parts) > 3 {
		return serviceFilter{}, usagef("want SERVICE[.NAMESPACE[.CLUSTER]], got %q", strings.Join(args, " "))
	}
	for _, p := range parts {
		if !endpoint.IsLabel(p) {
			return serviceFilter{}, usagef("%q in %q is not a DNS label", p, args[0])
		}
	}
	parts = append(parts, "", "")
	return serviceFilter{parts[0], parts[1], parts[2]}, nil
}

func (f serviceFilter) selects(k endpoint.Key) bool {
	return (f.service == "" || f.service == k.Service) && (f.namespace == "" || f.namespace == k.Namespace) &&
		(f.cluster == "" || f.cluster == k.Cluster)
}

func getEndpointsCommand() *cobra.Command {
	var (
		bus                busFlags
		cluster, namespace string
		output             string
	)
	cmd := &cobra.Command{
		Use:   "endpoints [SERVICE[.NAMESPACE[.CLUSTER]]]",
		Short: "Print every endpoint of the services, with its conditions",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usagef("--output %q is neither text nor json", output)
			}
			filter, err := parseServiceFilter(args)
			if err != nil {
				return err
			}
			filter.cluster = cmp.Or(filter.cluster, cluster)
			filter.namespace = cmp.Or(filter.namespace, namespace)
			conn, err := bus.connectClient(cmd)
			if err != nil {
				return err
			}
			defer conn.Close()
			states, err := snapshotStates(cmd.Context(), conn.States().Follow, filter.cluster)
			if err != nil {
				return fmt.Errorf("read the states: %w", err)
			}
			return printEndpoints(cmd.OutOrStdout(), output, rowsOf(states, filter))
		},
	}
	f := cmd.Flags()
	f.StringVar(&cluster, "cluster", "", "only this cluster")
	f.StringVarP(&namespace, "namespace", "n", "", "only this namespace")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	bus.add(f)
	return cmd
}

// endpointRow is one endpoint as it is printed.
type endpointRow struct {
	Cluster   string     `json:"cluster"`
	Namespace string     `json:"namespace"`
	Service   string     `json:"service"`
	Slice     string     `json:"slice"`
	Version   string     `json:"version"`
	Ports     []jsonPort `json:"ports"`
	jsonEndpoint
	conditions endpoint.Conditions
}

func rowsOf(states []endpoint.State, filter serviceFilter) []endpointRow {
	slices.SortFunc(states, func(a, b endpoint.State) int { return a.Key.Compare(b.Key) })
	rows := []endpointRow{}
	for _, st := range states {
		if !filter.selects(st.Key) {
			continue
		}
		for _, sl := range st.Slices {
			ports := make([]jsonPort, 0, len(sl.Ports))
			for _, p := range sl.Ports {
				ports = append(ports, jsonPort{p.Name, p.Number})
			}
			for _, e := range sl.Endpoints {
				rows = append(rows, endpointRow{st.Key.Cluster, st.Key.Namespace, st.Key.Service, sl.Name,
					sl.Version.String(), ports, endpointJSON(e), e.Conditions})
			}
		}
	}
	return rows
}

func printEndpoints(out io.Writer, output string, rows []endpointRow) error {
	if output == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "CLUSTER\tNAMESPACE\tSERVICE\tADDRESS\tPORTS\tCONDITIONS\tZONE\tPOD\tSLICE\tVERSION")
	for _, r := range rows {
		ports := make([]string, 0, len(r.Ports))
		for _, p := range r.Ports {
			ports = append(ports, strings.TrimPrefix(fmt.Sprintf("%s:%d", p.Name, p.Number), ":"))
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Cluster, r.Namespace, r.Service, r.Address,
			strings.Join(ports, ","), r.conditions, cmp.Or(r.Zone, "-"), cmp.Or(r.Pod, "-"), r.Slice, r.Version)
	}
	return w.Flush()
}
