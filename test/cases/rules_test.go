package cases

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// assignmentText reads an encoded assignment of that name as the strictest client would and gives it in one line.
func assignmentText(name string, encoded []byte) (string, error) {
	cla := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(encoded, cla); err != nil {
		return "", err
	}
	if cla.ClusterName != name {
		return "", fmt.Errorf("assignment %q is not that of %q", cla.ClusterName, name)
	}
	if err := accepted(cla); err != nil {
		return "", fmt.Errorf("a client would reject %v: %w", cla, err)
	}
	return textOf(cla), nil
}

// locality is what tells localities apart.
type locality struct {
	priority          uint32
	region, zone, sub string
}

// accepted returns an error if gRPC would reject the assignment or drop a part of it without a word, or if Envoy would.
func accepted(cla *endpointv3.ClusterLoadAssignment) error {
	seen, addrs := map[locality]bool{}, map[string]bool{}
	sums, highest := map[uint32]uint64{}, uint32(0)
	for _, l := range cla.Endpoints {
		at := locality{l.Priority, l.Locality.GetRegion(), l.Locality.GetZone(), l.Locality.GetSubZone()}
		sums[l.Priority] += uint64(l.LoadBalancingWeight.GetValue())
		highest = max(highest, l.Priority)
		switch {
		case l.Locality == nil:
			return fmt.Errorf("a locality without id")
		case l.LoadBalancingWeight.GetValue() == 0:
			return fmt.Errorf("locality %v without weight", at)
		case sums[l.Priority] > math.MaxUint32:
			return fmt.Errorf("the weights at priority %d overflow", l.Priority)
		case seen[at]:
			return fmt.Errorf("locality %v twice", at)
		case len(l.LbEndpoints) == 0:
			return fmt.Errorf("locality %v without endpoints", at)
		}
		seen[at] = true
		total := uint64(0)
		for _, e := range l.LbEndpoints {
			weight := uint64(1)
			if w := e.LoadBalancingWeight; w != nil {
				weight = uint64(w.Value)
			}
			if total += weight; weight == 0 || total > math.MaxUint32 {
				return fmt.Errorf("weight %d of an endpoint in %v", weight, at)
			}
			for _, a := range addressesOf(e) {
				if _, err := netip.ParseAddrPort(a); err != nil {
					return err
				}
				if addrs[a] {
					return fmt.Errorf("address %s twice", a)
				}
				addrs[a] = true
			}
		}
	}
	for p := range highest {
		if sums[p] == 0 {
			return fmt.Errorf("no priority %d below %d", p, highest)
		}
	}
	return nil
}

// addressesOf gives the address of an endpoint and its additional ones.
func addressesOf(e *endpointv3.LbEndpoint) []string {
	text := func(a *corev3.Address) string {
		s := a.GetSocketAddress()
		return net.JoinHostPort(s.GetAddress(), strconv.Itoa(int(s.GetPortValue())))
	}
	all := []string{text(e.GetEndpoint().GetAddress())}
	for _, m := range e.GetEndpoint().GetAdditionalAddresses() {
		all = append(all, text(m.GetAddress()))
	}
	return all
}

// textOf gives an assignment in one line: "p0 eu/z1 w2 10.0.0.1:8080 10.0.0.2*3:8080(draining); p1 ...". Four and more
// addresses in a row are written as one.
func textOf(cla *endpointv3.ClusterLoadAssignment) string {
	if len(cla.Endpoints) == 0 {
		return "empty"
	}
	var parts []string
	for _, l := range cla.Endpoints {
		words := []string{
			fmt.Sprintf("p%d %s/%s w%d", l.Priority, l.Locality.GetRegion(), l.Locality.GetZone(), l.LoadBalancingWeight.GetValue()),
		}
		for i := 0; i < len(l.LbEndpoints); {
			n := row(l.LbEndpoints[i:])
			words = append(words, endpointText(l.LbEndpoints[i], n))
			i += n
		}
		parts = append(parts, strings.Join(words, " "))
	}
	return strings.Join(parts, "; ")
}

// endpointText gives an endpoint, or n in a row.
func endpointText(e *endpointv3.LbEndpoint, n int) string {
	addrs := addressesOf(e)
	if n > 1 {
		at := netip.MustParseAddrPort(addrs[0])
		addrs[0] = fmt.Sprintf("%s*%d:%d", at.Addr(), n, at.Port())
	}
	text := strings.Join(addrs, "+")
	if e.HealthStatus != corev3.HealthStatus_HEALTHY {
		text += "(" + strings.ToLower(e.HealthStatus.String()) + ")"
	}
	return text
}

// row counts the endpoints that follow each other's addresses and are otherwise equal; fewer than four are none.
func row(all []*endpointv3.LbEndpoint) int {
	n := 1
	for ; n < len(all); n++ {
		before, next := addressesOf(all[n-1]), addressesOf(all[n])
		a, errA := netip.ParseAddrPort(before[0])
		b, errB := netip.ParseAddrPort(next[0])
		if errA != nil || errB != nil || len(before)+len(next) > 2 || all[n].HealthStatus != all[0].HealthStatus ||
			b != netip.AddrPortFrom(a.Addr().Next(), a.Port()) {
			break
		}
	}
	if n < 4 {
		return 1
	}
	return n
}

// nameOf gives the name of an encoded assignment.
func nameOf(encoded []byte) (string, error) {
	cla := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(encoded, cla); err != nil {
		return "", err
	}
	return cla.ClusterName, nil
}
