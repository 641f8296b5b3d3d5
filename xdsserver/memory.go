package xdsserver

import (
	"maps"
	"slices"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// service gives what Assign needs of a service; known says that some cluster has, or had, it.
func (s *Store) service(id serviceID) (svc Service, known bool) {
	svc = Service{Regions: s.regions, Failover: s.failover, Promised: s.promised, Former: s.former}
	if one := s.services[id]; one != nil {
		svc.States = one.states
	}
	return svc, len(svc.States) > 0
}

// state gives what the memory has of a Key; an empty State when it has nothing.
func (s *Store) state(key endpoint.Key) (st endpoint.State, known bool) {
	if svc := s.services[serviceOf(key)]; svc != nil {
		if i := svc.find(key.Cluster); i >= 0 {
			return svc.states[i], true
		}
	}
	return endpoint.State{Key: key}, false
}

// put replaces before, what the memory had of a Key, by after.
func (s *Store) put(before, after endpoint.State) {
	id := serviceOf(after.Key)
	svc := s.services[id]
	if svc == nil {
		svc = &service{id: id}
		s.services[id] = svc
	}
	if i := svc.find(after.Key.Cluster); i >= 0 {
		svc.states[i] = after
	} else {
		svc.states = append(svc.states, after)
		slices.SortFunc(svc.states, byCluster)
	}
	s.index.replace(svc, &before, &after)
	s.ignored.see(&after)
	s.former.see(&before, &after)
	s.keepPromises(after.Key.Cluster)
}

// forget removes a Key that neither the bus nor the memory has anything of.
func (s *Store) forget(key endpoint.Key) {
	delete(s.former, key)
	svc := s.services[serviceOf(key)]
	svc.states = slices.DeleteFunc(svc.states, func(st endpoint.State) bool { return st.Key == key })
	if len(svc.states) == 0 {
		delete(s.services, svc.id)
	}
}

// find gives the index of a cluster's State, -1 if there is none.
func (svc *service) find(cluster string) int {
	i, ok := slices.BinarySearchFunc(svc.states, cluster, func(st endpoint.State, c string) int { return strings.Compare(st.Key.Cluster, c) })
	if !ok {
		return -1
	}
	return i
}

// blind reports whether an expected cluster that name may be about has never been heard of, or no cluster at all: then
// nothing is known of what the name lacks.
func (s *Store) blind(name Name) bool {
	if len(s.clusters) == 0 {
		return true
	}
	for cluster, c := range s.clusters {
		if c.blind() && (name.Cluster == "" || name.Cluster == cluster) {
			return true
		}
	}
	return false
}

// portless reports whether a cluster that name may be about has slices of the service and no port in any: nobody can
// say then which ports it does not have.
func (s *Store) portless(name Name, scope Scope) bool {
	svc, _ := s.service(name.service())
	return slices.ContainsFunc(svc.within(scope).States, func(st endpoint.State) bool {
		return (name.Cluster == "" || name.Cluster == st.Key.Cluster) && portless(&st)
	})
}

// waiting lists the expected clusters that are not in sync, sorted; ready says that nothing else is missing.
func (s *Store) waiting() (clusters []string, ready bool) {
	for name, c := range s.clusters {
		if c.expected && !c.synced {
			clusters = append(clusters, name)
		}
	}
	slices.Sort(clusters)
	return clusters, s.once && s.recorded && len(s.clusters) > 0
}

func (s *Store) sortedClusters() []string { return slices.Sorted(maps.Keys(s.clusters)) }

// clusterNames lists the clusters that the bus knows, sorted.
func (s *Store) clusterNames() []string {
	return slices.DeleteFunc(s.sortedClusters(), func(name string) bool { return !s.clusters[name].known })
}

// floor gives the floor of a cluster.
func (s *Store) floor(cluster string) endpoint.Version {
	if c := s.clusters[cluster]; c != nil {
		return c.floor
	}
	return endpoint.Version{}
}

// version gives the version at which the memory knows a slice, live or gone.
func (s *Store) version(key endpoint.Key, name string) endpoint.Version {
	st, _ := s.state(key)
	if sl := liveSlice(&st, name); sl != nil {
		return sl.Version
	}
	for _, g := range st.Gone {
		if g.Name == name {
			return g.Version
		}
	}
	return endpoint.Version{}
}

func serviceOf(key endpoint.Key) serviceID { return serviceID{key.Namespace, key.Service} }
