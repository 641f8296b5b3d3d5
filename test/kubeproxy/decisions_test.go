package kubeproxy

// facts are what the predicates of the decisions look at, for one port of one service as one View sees it.
type facts struct {
	older     bool // an older slice says of a pod what the newest slice that lists the pod does not say
	conflict  bool // one address and port is there twice, with other conditions or hints
	emptyHint bool // a zone hint has the empty name
	noPort    bool // slices have the port, and no Service has a port of that name, or there is no Service
	left      bool // a slice was given to another service by an edit of its label
	imported  bool // a slice has the service label of the Multi-Cluster Services API only
	number    bool // the port is numbered outside of 1 to 65535
	byNumber  bool // the name of the port is the number of one, and no slice has a port of that name
	protocol  bool // it is a port of UDP or SCTP
	foreign   bool // the client is of another cluster, and there are hints or a label that keeps it out
}

// decision is one way in which slicecast differs from kube-proxy on purpose. Where holds is true, kube-proxy may give
// another set; slicecast must give the very set that the oracle predicts.
type decision struct {
	name, reason string
	holds        func(facts) bool
}

// decisions is the whole list.
var decisions = [...]decision{
	{
		"D12: the newest slice speaks for its pod",
		"A pod is moved between slices in two writes, and the newer one knows. kube-proxy takes the union, and of two " +
			"slices that disagree about one address the one that its map gives last.",
		func(f facts) bool { return f.older },
	},
	{
		"D12: of one address and port the usable one counts, then the newer",
		"kube-proxy takes the last one that is not terminating, even if it is not ready, in the order of a map; two " +
			"replicas of slicecast must agree.",
		func(f facts) bool { return f.conflict },
	},
	{
		"D13: a hint for a zone without name is no hint",
		"Legal, and written by no controller. Hints are joined names, and where one is missing they fail open.",
		func(f facts) bool { return f.emptyHint },
	},
	{
		"D1: slices are enough",
		"slicecast reads no Services: it knows ports by the slices that have them. kube-proxy does nothing for a port that " +
			"no Service has, as after a Service's deletion until its slices follow, or without a cluster IP.",
		func(f facts) bool { return f.noPort },
	},
	{
		"D3: a slice belongs to the service of its label as it is now",
		"kube-proxy's handler of updates does not look at the old object, so a slice whose label was edited stays under its " +
			"former service until kube-proxy starts again.",
		func(f facts) bool { return f.left },
	},
	{
		"R10: imported slices belong to the imported service",
		"kube-proxy reads kubernetes.io/service-name only, and leaves multicluster.kubernetes.io/service-name to others.",
		func(f facts) bool { return f.imported },
	},
	{
		"D9: a port number outside of 1 to 65535 is no port",
		"The API server does not check the range. kube-proxy passes such a number on to rules that cannot hold it.",
		func(f facts) bool { return f.number },
	},
	{
		"a name that is a number means that target port",
		"xDS resources may name a port by number; an exact name wins. kube-proxy knows names only.",
		func(f facts) bool { return f.byNumber },
	},
	{
		"D9: TCP only",
		"Envoy's UDP listeners and SCTP are out of scope: of such ports slicecast serves nothing.",
		func(f facts) bool { return f.protocol },
	},
	{
		"D13, D19: hints are for clients of the slice's own cluster",
		"Zones of one cluster mean nothing in another. Clients there fail over to all, or as slicecast.io/failover says.",
		func(f facts) bool { return f.foreign },
	},
}

// holding gives the numbers of the decisions whose predicate holds.
func holding(f facts) []int {
	var out []int
	for i := range decisions {
		if decisions[i].holds(f) {
			out = append(out, i)
		}
	}
	return out
}
