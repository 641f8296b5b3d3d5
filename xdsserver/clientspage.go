package xdsserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ClientsRequest is the question "clients" to a replica on the bus. Its JSON form is a contract.
type ClientsRequest struct {
	After uint64 `json:"after,omitempty"` // streams with a higher number only: ClientsPage.More of the page before
	Node  string `json:"node,omitempty"`  // node ids that begin so only
	Names bool   `json:"names,omitempty"` // with the names that are subscribed to
}

// ClientsPage is the answer: streams in the order in which they were opened, as many as fit a message of the bus.
type ClientsPage struct {
	Clients []Client `json:"clients"`
	More    uint64   `json:"more,omitempty"` // there are others: ask for those after this number
}

// Client is one open stream of a client.
type Client struct {
	Stream   uint64       `json:"stream"` // number within its replica
	Node     string       `json:"node"`
	Address  string       `json:"address"` // peer of the connection, host:port
	Cluster  string       `json:"cluster,omitempty"`
	Region   string       `json:"region,omitempty"`
	Zone     string       `json:"zone,omitempty"`
	KubeNode string       `json:"kubernetes_node,omitempty"`
	Family   string       `json:"ip_family,omitempty"`
	Service  string       `json:"service"`  // ads, cds, eds, lds or rds
	Protocol string       `json:"protocol"` // delta or sotw
	Since    time.Time    `json:"since"`
	Types    []ClientType `json:"types"` // those that it asked for
}

// ClientType is what a client subscribes to of one type, and how it stands to it.
type ClientType struct {
	Type           string     `json:"type"` // cds, eds, lds or rds
	Wildcard       bool       `json:"wildcard,omitempty"`
	Names          int        `json:"names"`          // resources that it subscribes to, those of the wildcard included
	Synced         int        `json:"synced"`         // it acknowledged what is current
	Behind         int        `json:"behind"`         // it was sent, or will be, something newer than what it acknowledged
	Rejected       int        `json:"rejected"`       // it rejected what is current
	Unsent         int        `json:"unsent"`         // it was sent nothing
	Unresolved     int        `json:"unresolved"`     // names of no service that it may see
	Unacknowledged int        `json:"unacknowledged"` // responses that it has not answered
	NACKs          uint64     `json:"nacks"`
	Error          string     `json:"error,omitempty"` // of its last NACK
	ErrorAt        *time.Time `json:"error_at,omitempty"`
	Answered       *time.Time `json:"answered,omitempty"`         // when it last answered
	Nowhere        []string   `json:"unresolved_names,omitempty"` // the first of those that are unresolved
	Subscribed     []string   `json:"subscribed,omitempty"`       // the first of all, where they were asked for
}

// The bounds of a page, in bytes, and of the names in it.
const (
	pageSize    = 256 << 10
	maxNowhere  = 10
	namesSize   = 24 << 10 // of one type; JSON may make six bytes of one, and a message of the bus has a mebibyte
	maxTextSize = 256      // of each text of somebody else
)

// Clients is the query "clients" on the bus: a ClientsRequest in, a ClientsPage out, both JSON.
func (s *Server) Clients(ctx context.Context, body []byte) ([]byte, error) {
	var r ClientsRequest
	if err := json.Unmarshal(body, &r); err != nil {
		s.metrics.statuses.WithLabelValues(statusRefused).Inc()
		return nil, fmt.Errorf("body of the clients query: %w", err)
	}
	done, err := s.lookAlone(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	page, size := ClientsPage{Clients: []Client{}}, 0
	for _, st := range s.hub.lookFrom(r.After, func(st *stream) bool { return strings.HasPrefix(st.node, r.Node) }) {
		look, open := s.hub.look(st)
		if !open {
			continue
		}
		client := look.client(r.Names)
		text, err := json.Marshal(client)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", client.Stream, err)
		}
		if size += len(text); size > pageSize && len(page.Clients) > 0 {
			page.More = page.Clients[len(page.Clients)-1].Stream
			break
		}
		page.Clients = append(page.Clients, client)
	}
	s.metrics.statuses.WithLabelValues(statusDone).Inc()
	return json.Marshal(page)
}

// client puts a stream into the words of the query.
func (c *clientLook) client(names bool) Client {
	v := c.view
	out := Client{
		Stream: c.number, Node: bounded(c.node, maxTextSize), Address: c.peer, Service: c.service, Protocol: c.protocol(), Since: c.since,
		Cluster: bounded(v.Cluster, maxTextSize), Region: bounded(v.Region, maxTextSize), Zone: bounded(v.Zone, maxTextSize),
		KubeNode: bounded(v.Node, maxTextSize), Family: v.Family.String(), Types: make([]ClientType, 0, len(c.types)),
	}
	for i := range c.types {
		out.Types = append(out.Types, c.types[i].client(names))
	}
	return out
}

func (t *typeLook) client(names bool) ClientType {
	n := t.count()
	out := ClientType{
		Type: t.kind.String(), Wildcard: t.wildcard, Names: len(t.resources),
		Synced: n[standingSynced], Behind: n[standingStale], Rejected: n[standingRejected], Unsent: n[standingUnsent],
		Unacknowledged: t.window, NACKs: t.answers.nacks, Error: t.answers.refusal,
	}
	if at := t.answers.refused; !at.IsZero() {
		out.ErrorAt = &at
	}
	if at := t.answers.last; !at.IsZero() {
		out.Answered = &at
	}
	room := namesSize
	for _, r := range t.resources {
		if !r.known {
			if out.Unresolved++; len(out.Nowhere) < maxNowhere {
				out.Nowhere = append(out.Nowhere, bounded(r.name, maxTextSize))
			}
		}
		if room -= min(len(r.name), maxTextSize); names && room >= 0 {
			out.Subscribed = append(out.Subscribed, bounded(r.name, maxTextSize))
		}
	}
	return out
}
