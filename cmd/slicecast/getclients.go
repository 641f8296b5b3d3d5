package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/xdsserver"
)

func getClientsCommand() *cobra.Command {
	var (
		flags  busFlags
		ask    xdsserver.ClientsRequest
		output string
	)
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Print the clients of all xDS replicas: what each was sent, acknowledged and rejected",
		Long: "Print the streams of all xDS replicas: the client, what it subscribes to, and how it stands to it.\n" +
			"BEHIND counts resources of which the client has not acknowledged the current version, UNACKED responses without an\n" +
			"answer, NACKS responses that it rejected, with the reason of the last one; UNRESOLVED names of no known service.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usagef("--output %q is neither text nor json", output)
			}
			conn, err := flags.connectClient(cmd)
			if err != nil {
				return err
			}
			defer conn.Close()
			rows, err := readClients(cmd.Context(), conn, ask)
			return errors.Join(err, printClients(cmd.OutOrStdout(), output, rows, time.Now()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&ask.Node, "node", "", "only clients whose node id begins so")
	f.BoolVar(&ask.Names, "names", false, "with the names that each subscribes to (the first hundreds), in JSON")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	flags.add(f)
	return cmd
}

// clientRow is one stream as it is printed.
type clientRow struct {
	Replica string `json:"replica"`
	xdsserver.Client
}

// readClients asks every xDS replica for its clients. With an error it gives those of the others.
func readClients(ctx context.Context, conn *bus.Bus, ask xdsserver.ClientsRequest) ([]clientRow, error) {
	patience, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	members, err := membersNow(patience, conn, xdsRole)
	if err != nil {
		return nil, err
	}
	parts, errs := make([][]clientRow, len(members)), make([]error, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			info := xdsserver.PeerInfo{}
			if err := json.Unmarshal(m.Info, &info); err != nil || info.Name == "" {
				info.Name = m.ID
			}
			if parts[i], errs[i] = clientsOf(ctx, conn, m.ID, info.Name, ask); errs[i] != nil {
				errs[i] = fmt.Errorf("replica %s: %w", info.Name, errs[i])
			}
		})
	}
	all.Wait()
	rows := slices.Concat(parts...)
	slices.SortStableFunc(rows, func(a, b clientRow) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Replica, b.Replica), cmp.Compare(a.Stream, b.Stream))
	})
	return rows, errors.Join(errs...)
}

// membersNow gives who is alive in a role.
func membersNow(ctx context.Context, conn *bus.Bus, role string) (set []bus.Member, err error) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	known := false
	err = conn.Members(ctx, role, func(members []bus.Member) {
		set, known = members, true
		done()
	})
	if err == nil && !known {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("read who is alive as %s: %w", role, err)
	}
	return set, nil
}

// clientsOf asks one replica, page by page.
func clientsOf(ctx context.Context, conn *bus.Bus, id, name string, ask xdsserver.ClientsRequest) (rows []clientRow, err error) {
	for {
		body, err := json.Marshal(ask)
		if err != nil {
			return rows, err
		}
		answer, err := conn.Queries().AskReplica(ctx, id, clientsQuery, body)
		if err != nil {
			return rows, err
		}
		var page xdsserver.ClientsPage
		if err := json.Unmarshal(answer, &page); err != nil {
			return rows, fmt.Errorf("its answer: %w", err)
		}
		for _, c := range page.Clients {
			rows = append(rows, clientRow{name, c})
		}
		if page.More <= ask.After {
			return rows, nil
		}
		ask.After = page.More
	}
}

func printClients(out io.Writer, output string, rows []clientRow, now time.Time) error {
	if output == "json" {
		if rows == nil {
			rows = []clientRow{}
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "NODE\tADDRESS\tREPLICA\tCLUSTER\tREGION\tZONE\tPROTOCOL\tAGE\tNAMES\tUNRESOLVED\tBEHIND\tUNACKED\tNACKS\tLAST ERROR")
	for _, r := range rows {
		c := cellsOf(r.Client)
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s %s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n",
			plain(r.Node), r.Address, r.Replica, plain(r.Cluster), plain(r.Region), plain(r.Zone), r.Service, r.Protocol,
			now.Sub(r.Since).Round(time.Second), c.names, c.unresolved, c.behind, c.unacked, c.nacks, plain(c.lastError))
	}
	return w.Flush()
}

// cells are what a client's types come to in one line.
type cells struct {
	names, unresolved, lastError string
	behind, unacked              int
	nacks                        uint64
}

func cellsOf(r xdsserver.Client) (c cells) {
	var names, nowhere []string
	var at time.Time
	unresolved := 0
	for _, t := range r.Types {
		count := fmt.Sprintf("%s:%d", t.Type, t.Names)
		if t.Wildcard {
			count += "*"
		}
		names, nowhere = append(names, count), append(nowhere, t.Nowhere...)
		unresolved += t.Unresolved
		c.behind += t.Behind + t.Rejected
		c.unacked += t.Unacknowledged
		c.nacks += t.NACKs
		if t.ErrorAt != nil && t.ErrorAt.After(at) {
			at, c.lastError = *t.ErrorAt, t.Error
		}
	}
	c.names = cmp.Or(strings.Join(names, ","), "-")
	c.unresolved = fmt.Sprint(unresolved)
	if len(nowhere) > 0 {
		slices.Sort(nowhere)
		c.unresolved += " (" + plain(listed(slices.Compact(nowhere))) + ")"
	}
	return c
}

// plain gives text of somebody else as it may stand in one cell, "-" for none.
func plain(text string) string {
	const most = 100
	line, _, more := strings.Cut(text, "\n")
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, line)
	if len(line) > most {
		line, more = strings.ToValidUTF8(line[:most], ""), true
	}
	if more {
		line += "..."
	}
	return cmp.Or(line, "-")
}
