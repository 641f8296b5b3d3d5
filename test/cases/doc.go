// Package cases proves, case by case, what becomes of EndpointSlices on their way from Kubernetes to a proxy.
//
// Each file testdata/NNN-name.case is one kind of fault that other systems had: objects in, State and assignments out.
// Run with -update to rewrite what follows each "----", and read the difference. A case is a text of stages:
//
//	# A ready pod wins over a terminating one on the same address.
//	set prod/shop/cart cart-a  http:8080  10.0.0.1[F/F/T]{uid=old}  10.0.0.1[T/T/F]{uid=new}
//	----
//	state prod/shop/cart rv=101
//	  cart-a rv=101 http:8080  10.0.0.1[rs-]{uid=new,kind=Pod}  10.0.0.1[--t]{uid=old,kind=Pod}
//	assign cluster=prod
//	  cart.shop:http  p0 / w1 10.0.0.1:8080
//
// The lines before "----" are what the API server went through, each with the next resourceVersion of its cluster:
//
//	set KEY SLICE [OPTION...] PORTS [ENDPOINT...]   an EndpointSlice as it is now
//	del KEY SLICE [rv=N]                            it has been deleted
//	record CLUSTER REGION                           the region of a cluster, in the first stage only
//	name NAME                                       a resource that clients ask for beside those of all ports
//	restart                                         projector, xDS server and clients start anew from what the bus holds
//
// PORTS is "-" for none or NAME:NUMBER[/APP][@PROTOCOL][,...]; "nil" is a nil name or number. ENDPOINT is
// ADDR[+ADDR...][R/S/T][@ZONE][{ATTRIBUTE,...}], each condition T, F or - for nil, [] for none of them; ADDR*N are N
// addresses in a row. The attributes are uid=, node=, host=, and zones= and nodes= for hints (a+b). The options are
// rv=, uid=, type=, service= (its label; "none" for no label), imported= (the label of multi-cluster services),
// terminating=, failover= and label=NAME:VALUE.
//
// The sections after "----" are, after the steps of the stage and all before: "state", of every Key; "assign VIEW", what
// that View is given of every service port; "push VIEW", what a client of that View was sent since the stage before,
// over a real stream, one line for each resource of each response; "explain VIEW", the decision about each address;
// "skips", what the translation of this stage left out; "transitions", what the events of this stage tell people.
// VIEW is some of cluster=, region=, zone=, node= and family=. An assignment is one line: for each locality its
// priority, region/zone, weight and addresses.
//
// Every stage of every case is also run with its objects shuffled inside, with its events in other orders, batches and
// more than once, and through a projector and an xDS server to clients of both protocols; the result has to be the same.
package cases
