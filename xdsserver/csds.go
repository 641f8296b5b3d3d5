package xdsserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The bounds of an answer, in resources of one type of one client and in bytes. gRPC clients take 4 MiB unless told
// otherwise.
const (
	statusListed     = 1000
	statusListedSize = 2 << 20 // once the answer is larger, clients are summed up
	statusSize       = 7 << 19 // an answer that would be larger is refused
)

// summaryName is that of the entry that sums up what is not listed. It is no name of a resource.
const summaryName = "*"

// How questions for the state of clients end.
const (
	statusDone    = "done"
	statusRefused = "refused"
	statusLarge   = "large"
)

// csdsService tells, stream by stream, what clients were sent and what they answered. It tells no contents.
type csdsService struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
	s *Server
}

// FetchClientStatus answers one request.
func (c csdsService) FetchClientStatus(ctx context.Context, r *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	return c.s.clientStatus(ctx, r)
}

// StreamClientStatus answers each request of a stream, until the client ends it or the server stops.
func (c csdsService) StreamClientStatus(g statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	requests, failed := make(chan *statusv3.ClientStatusRequest), make(chan error, 1)
	c.s.workers.Go(func() {
		for {
			r, err := g.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-g.Context().Done():
				return
			}
		}
	})
	for {
		select {
		case r := <-requests:
			answer, err := c.s.clientStatus(g.Context(), r)
			if err != nil {
				return err
			}
			if err := g.Send(answer); err != nil {
				return err
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-c.s.stopping:
			return status.Error(codes.Unavailable, "this replica is stopping")
		}
	}
}

// clientStatus answers a request, and counts how.
func (s *Server) clientStatus(ctx context.Context, r *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	answer, err := s.statusOf(ctx, r)
	switch status.Code(err) {
	case codes.OK:
		s.metrics.statuses.WithLabelValues(statusDone).Inc()
	case codes.ResourceExhausted:
		s.metrics.statuses.WithLabelValues(statusLarge).Inc()
	default:
		s.metrics.statuses.WithLabelValues(statusRefused).Inc()
	}
	return answer, err
}

func (s *Server) statusOf(ctx context.Context, r *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	matches, err := nodeMatcher(r.GetNodeMatchers())
	if err != nil {
		return nil, err
	}
	may, err := s.sight(ctx)
	if err != nil {
		return nil, err
	}
	done, err := s.lookAlone(ctx)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer done()
	answer, size := &statusv3.ClientStatusResponse{}, 0
	for _, st := range s.hub.lookFrom(0, func(st *stream) bool { return st.known && may(st) && matches(st.node) }) {
		look, open := s.hub.look(st)
		if !open {
			continue
		}
		config := clientConfig(&look, statusListed)
		if size+proto.Size(config) > statusListedSize {
			config = clientConfig(&look, 0)
		}
		if size += proto.Size(config) + 8; size > statusSize {
			return nil, status.Error(codes.ResourceExhausted, "too many clients for one answer: name fewer with node_matchers, by a prefix of node_id for example")
		}
		answer.Config = append(answer.Config, config)
	}
	return answer, nil
}

// sight gives which streams the caller may see: all where there are no rules, or where its identity may see everything;
// else those that the same identities have opened.
func (s *Server) sight(ctx context.Context) (func(*stream) bool, error) {
	all := func(*stream) bool { return true }
	if s.cfg.Access == nil {
		return all, nil
	}
	var identities []string
	if p, ok := peer.FromContext(ctx); ok {
		identities = identitiesFrom(p.AuthInfo)
	}
	if s.cfg.Access().Scope(identities).seesAll() {
		return all, nil
	}
	if len(identities) == 0 {
		return nil, status.Error(codes.PermissionDenied, "the state of clients is shown to clients with a certificate")
	}
	who := joinedIdentities(identities)
	return func(st *stream) bool { return st.who == who }, nil
}

func joinedIdentities(identities []string) string { return strings.Join(identities, "\x00") }

// clientConfig puts a stream into the words of CSDS, with at most listed resources of each type. What is not listed is
// summed up in an entry of its own.
func clientConfig(c *clientLook, listed int) *statusv3.ClientConfig {
	config := &statusv3.ClientConfig{
		Node:        nodeOfView(c.node, c.view),
		ClientScope: fmt.Sprintf("stream %d, %s %s, from %s", c.number, c.service, c.protocol(), c.peer),
	}
	for i := range c.types {
		t := &c.types[i]
		rest := t.count()
		for _, r := range t.worst(listed) {
			rest[r.standing]--
			config.GenericXdsConfigs = append(config.GenericXdsConfigs, genericConfig(t, r))
		}
		if n := rest[standingSynced] + rest[standingStale] + rest[standingRejected] + rest[standingUnsent]; n > 0 {
			config.GenericXdsConfigs = append(config.GenericXdsConfigs, &statusv3.ClientConfig_GenericXdsConfig{
				TypeUrl: t.kind.typeURL(), Name: summaryName, ConfigStatus: worstOf(rest), LastUpdated: stampOf(t),
				VersionInfo: fmt.Sprintf("%d more: %d synced, %d stale, %d error, %d not sent", n,
					rest[standingSynced], rest[standingStale], rest[standingRejected], rest[standingUnsent]),
			})
		}
	}
	return config
}

func genericConfig(t *typeLook, r resourceLook) *statusv3.ClientConfig_GenericXdsConfig {
	g := &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl: t.kind.typeURL(), Name: r.name, VersionInfo: r.version,
		ConfigStatus: configStatuses[r.standing], LastUpdated: stampOf(t),
	}
	if r.standing == standingRejected {
		g.ErrorState = &adminv3.UpdateFailureState{
			Details: t.answers.refusal, VersionInfo: r.version, LastUpdateAttempt: timestamppb.New(t.answers.refused),
		}
	}
	return g
}

// configStatuses are the standings in the words of CSDS.
var configStatuses = [standings]statusv3.ConfigStatus{
	standingSynced: statusv3.ConfigStatus_SYNCED, standingStale: statusv3.ConfigStatus_STALE,
	standingRejected: statusv3.ConfigStatus_ERROR, standingUnsent: statusv3.ConfigStatus_NOT_SENT,
}

func worstOf(n [standings]int) statusv3.ConfigStatus {
	for _, s := range [...]standing{standingRejected, standingStale, standingUnsent} {
		if n[s] > 0 {
			return configStatuses[s]
		}
	}
	return configStatuses[standingSynced]
}

// stampOf gives when the client last answered a response of the type, nil before it did.
func stampOf(t *typeLook) *timestamppb.Timestamp {
	if t.answers.last.IsZero() {
		return nil
	}
	return timestamppb.New(t.answers.last)
}

// nodeOfView gives of a client's node what is kept of it.
func nodeOfView(id string, v View) *corev3.Node {
	n := &corev3.Node{Id: id}
	if v.Region != "" || v.Zone != "" {
		n.Locality = &corev3.Locality{Region: v.Region, Zone: v.Zone}
	}
	fields := map[string]*structpb.Value{}
	for key, text := range map[string]string{metadataCluster: v.Cluster, metadataNode: v.Node, metadataFamily: v.Family.String()} {
		if text != "" {
			fields[key] = structpb.NewStringValue(text)
		}
	}
	if len(fields) > 0 {
		n.Metadata = &structpb.Struct{Fields: fields}
	}
	return n
}
