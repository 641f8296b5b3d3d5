// Pure: values in, values out.

package xdsserver

import (
	"slices"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Former is which ports a service had, by Key, before its slices named none: while it has no pods, Kubernetes leaves it
// one slice without endpoints and without ports. The service is still there, so its ports are, with nobody behind them:
// a cluster that went would take its routes with it, and would have to be warmed when pods come. It holds Keys with such
// slices only, and is told of every State in its turn.
type Former map[endpoint.Key][]endpoint.Port

// see notes what became of a State.
func (f Former) see(before, after *endpoint.State) {
	if !portless(after) {
		delete(f, after.Key)
	} else if ports := portsOf(before); len(ports) > 0 {
		f[after.Key] = ports
	}
}

// portless reports whether a service has slices, and no port in any of them.
func portless(st *endpoint.State) bool {
	return len(st.Slices) > 0 && !slices.ContainsFunc(st.Slices, func(sl endpoint.Slice) bool { return len(sl.Ports) > 0 })
}

// portsOf lists the ports of all slices, those of the newest first.
func portsOf(st *endpoint.State) (ports []endpoint.Port) {
	all := make([]*endpoint.Slice, len(st.Slices))
	for i := range st.Slices {
		all[i] = &st.Slices[i]
	}
	slices.SortFunc(all, func(a, b *endpoint.Slice) int {
		switch {
		case newer(a, b):
			return -1
		case newer(b, a):
			return 1
		default:
			return 0
		}
	})
	for _, sl := range all {
		for _, p := range sl.Ports {
			if !slices.Contains(ports, p) {
				ports = append(ports, p)
			}
		}
	}
	return ports
}
