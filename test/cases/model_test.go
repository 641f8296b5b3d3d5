package cases

import (
	"maps"
	"net/netip"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/xdsserver"
)

// addrs is a set of addresses.
type addrs map[netip.AddrPort]bool

// usable is a plain model of what the slices of a service, in all clusters, offer to a client without zone and node that
// may use every cluster: of each family the ready endpoints, and only where there are none, those that serve while
// they end. The newest slice speaks for a pod.
func usable(all []endpoint.Slice, port string, family xdsserver.Family) addrs {
	out := addrs{}
	for _, v6 := range []bool{false, true} {
		if v6 && family == xdsserver.IPv4 || !v6 && family == xdsserver.IPv6 {
			continue
		}
		ready, fallback := addrs{}, addrs{}
		for _, sl := range all {
			for _, p := range sl.Ports {
				for _, e := range sl.Endpoints {
					c, here := saidOf(all, sl, e)
					if p.Name != port || e.Addr.Is6() != v6 || !here {
						continue
					}
					at := netip.AddrPortFrom(e.Addr, p.Number)
					switch {
					case c&endpoint.Ready != 0:
						ready[at] = true
					case c&endpoint.Serving != 0 && c&endpoint.Terminating != 0:
						fallback[at] = true
					}
				}
			}
		}
		if len(ready) == 0 {
			ready = fallback
		}
		maps.Copy(out, ready)
	}
	return out
}

// saidOf gives the conditions of an endpoint of sl as the newest slice has them that knows its pod, and whether that
// slice has the pod at this address.
func saidOf(all []endpoint.Slice, sl endpoint.Slice, e endpoint.Endpoint) (endpoint.Conditions, bool) {
	if e.TargetUID == "" {
		return e.Conditions, true
	}
	speaker := sl
	for _, other := range all {
		if other.Key.Cluster == sl.Key.Cluster && other.Version.After(speaker.Version) {
			for _, o := range other.Endpoints {
				if o.TargetUID == e.TargetUID && o.Addr.Is6() == e.Addr.Is6() {
					speaker = other
				}
			}
		}
	}
	if speaker.Name == sl.Name {
		return e.Conditions, true
	}
	for _, o := range speaker.Endpoints {
		if o.TargetUID == e.TargetUID && o.Addr == e.Addr {
			return o.Conditions, true
		}
	}
	return 0, false
}

// given reads the addresses of an encoded assignment, and what is wrong with it.
func given(encoded []byte) (addrs, error) {
	cla := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(encoded, cla); err != nil {
		return nil, err
	}
	if err := accepted(cla); err != nil {
		return nil, err
	}
	out := addrs{}
	for _, l := range cla.Endpoints {
		for _, e := range l.LbEndpoints {
			for _, a := range addressesOf(e) {
				out[netip.MustParseAddrPort(a)] = true
			}
		}
	}
	return out, nil
}

// within reports whether every address of a is in b.
func (a addrs) within(b addrs) bool {
	for at := range a {
		if !b[at] {
			return false
		}
	}
	return true
}

// slicesOf gives the slices of one service in all States.
func slicesOf(states map[endpoint.Key]endpoint.State, name xdsserver.Name) (all []endpoint.Slice) {
	for _, st := range serviceOf(states, nil, name).States {
		all = append(all, st.Slices...)
	}
	return all
}
