package cases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver"
)

const typeURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// client is one stream, which acknowledges whatever the strictest client would. The goroutine of pump only sends to in.
type client struct {
	kind   string
	view   xdsserver.View
	held   map[string]string // text of each assignment
	log    []string          // each resource of each response, the fence's excepted
	in     chan []*anypb.Any
	err    error // why in was closed
	cancel context.CancelFunc
}

func nodeOf(kind string, v xdsserver.View) *corev3.Node {
	meta := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	family := map[xdsserver.Family]string{xdsserver.IPv4: "ipv4", xdsserver.IPv6: "ipv6"}[v.Family]
	for key, text := range map[string]string{"cluster": v.Cluster, "node": v.Node, "ip-family": family} {
		if text != "" {
			meta.Fields["slicecast.io/"+key] = structpb.NewStringValue(text)
		}
	}
	return &corev3.Node{Id: kind, Locality: &corev3.Locality{Region: v.Region, Zone: v.Zone}, Metadata: meta}
}

func openDelta(ctx context.Context, conn *grpc.ClientConn, view xdsserver.View, names []string) (*client, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &client{kind: "delta", view: view, held: map[string]string{}, in: make(chan []*anypb.Any, 100), cancel: cancel}
	request := &discoveryv3.DeltaDiscoveryRequest{Node: nodeOf(c.kind, view), TypeUrl: typeURL, ResourceNamesSubscribe: names}
	go c.pump(ctx, func() ([]*anypb.Any, error) {
		if err := stream.Send(request); err != nil {
			return nil, err
		}
		response, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if len(response.RemovedResources) > 0 {
			return nil, fmt.Errorf("assignments %q were removed", response.RemovedResources)
		}
		var all []*anypb.Any
		for _, r := range response.Resources {
			all = append(all, r.Resource)
		}
		request = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: response.Nonce}
		return all, nil
	})
	return c, nil
}

func openSotW(ctx context.Context, conn *grpc.ClientConn, view xdsserver.View, names []string) (*client, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &client{kind: "SotW", view: view, held: map[string]string{}, in: make(chan []*anypb.Any, 100), cancel: cancel}
	request := &discoveryv3.DiscoveryRequest{Node: nodeOf(c.kind, view), TypeUrl: typeURL, ResourceNames: names}
	go c.pump(ctx, func() ([]*anypb.Any, error) {
		if err := stream.Send(request); err != nil {
			return nil, err
		}
		response, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		request = &discoveryv3.DiscoveryRequest{
			TypeUrl: typeURL, ResourceNames: names, ResponseNonce: response.Nonce, VersionInfo: response.VersionInfo,
		}
		return response.Resources, nil
	})
	return c, nil
}

// pump hands on what the stream says until it ends.
func (c *client) pump(ctx context.Context, next func() ([]*anypb.Any, error)) {
	defer close(c.in)
	for {
		all, err := next()
		if err != nil {
			c.err = err
			return
		}
		select {
		case c.in <- all:
		case <-ctx.Done():
			return
		}
	}
}

// end ends the stream and waits for its goroutine.
func (c *client) end() {
	c.cancel()
	for range c.in {
	}
}

// await takes responses until every cluster's fence of that number, or a later one, has arrived.
func (c *client) await(ctx context.Context, fence, clusters int) error {
	for !c.fenced(fence, clusters) {
		select {
		case all, open := <-c.in:
			if !open {
				return errors.Join(errors.New("the stream has ended"), c.err)
			}
			if err := c.take(all); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("nothing more came; it holds %v", c.held)
		}
	}
	return nil
}

// fenced reports whether the addresses of the fence that the View sees all have that port.
func (c *client) fenced(fence, clusters int) bool {
	for i, name := range fenceNames {
		seen := clusters
		if c.view.Family == xdsserver.IPv4 && i == 1 || c.view.Family == xdsserver.IPv6 && i == 0 {
			seen = 0
		}
		if strings.Count(c.held[name], fmt.Sprintf(":%d", fence)+" ")+strings.Count(c.held[name], fmt.Sprintf(":%d;", fence)) < seen {
			return false
		}
	}
	return true
}

// take reads the resources of one response.
func (c *client) take(all []*anypb.Any) error {
	for _, r := range all {
		name, text, err := readResource(r)
		if err != nil {
			return err
		}
		if slices.Contains(fenceNames, name) {
			c.held[name] = text + " "
			continue
		}
		c.held[name] = text
		c.log = append(c.log, name+"  "+text)
	}
	return nil
}

// condense sorts the log by name and leaves the last of what was sent of a name. How often that was is for chance where
// its service had several events at once, but never more often than it had events.
func (c *client) condense(events []endpoint.Event) error {
	had, sent, last := map[string]int{}, map[string]int{}, map[string]string{}
	for _, e := range events {
		had[e.Slice.Key.Service+"."+e.Slice.Key.Namespace]++
	}
	for _, line := range c.log {
		name, _, _ := strings.Cut(line, "  ")
		sent[name]++
		last[name] = line
	}
	for name, n := range sent {
		parsed, err := xdsserver.ParseName(name)
		if err != nil {
			return err
		}
		if events := max(1, had[parsed.Service+"."+parsed.Namespace]); n > events {
			return fmt.Errorf("%s client of %+v was sent %s %d times for %d events: %q", c.kind, c.view, name, n, events, c.log)
		}
	}
	c.log = slices.Sorted(maps.Values(last))
	return nil
}

// readResource gives the name and the text of an assignment.
func readResource(r *anypb.Any) (name, text string, err error) {
	if r.TypeUrl != typeURL {
		return "", "", fmt.Errorf("a resource of type %s", r.TypeUrl)
	}
	name, err = nameOf(r.Value)
	if err != nil {
		return "", "", err
	}
	text, err = assignmentText(name, r.Value)
	return name, text, err
}
