// Package endpointtest is for tests: random legal values, histories of a cluster, and traces.
//
// A trace is a text that shows the map in motion: what a cluster said, a line "----", and what came of it.
//
//	# A pod is replaced.
//	set prod/shop/cart cart-x1 rv=7 http:8080  10.0.0.1[rs-]@z1
//	set prod/shop/cart cart-x1 rv=8 http:8080  10.0.0.1[-st]@z1
//	----
//	state prod/shop/cart rv=8
//	  cart-x1 rv=8 http:8080  10.0.0.1[-st]@z1
//	assign zone=z1
//	  cart.shop:http  p0 z1 10.0.0.1:8080 healthy
//
// Another "----" leads back to what the cluster said next. The lines of the first part are
//
//	set KEY SLICE rv=V [OPTION...] PORTS [ENDPOINT...]   what a slice is now
//	gone KEY SLICE rv=V [OPTION...]                      it is not there any more
//	open CLUSTER                                         a new session begins: the view is empty, memory is not
//	checkpoint CLUSTER rv=V                              the view at hand is complete as of V
//
// where V is [GENERATION/]RESOURCE (generation 1 is left out), PORTS is "-" or NAME:NUMBER[/APP][,...], ENDPOINT is
// ADDR[rst][@ZONE][{ATTRIBUTE,...}], the attributes are uid=, kind=, target=, node=, host=, and zones= and nodes= for
// hints (a+b), and the options are uid=, translator=, terminating=, failover=, observed=, triggered=, prev= and
// peers=SLICE@V,... . Bytes that would break a word are written %XX. Transitions of events are not written.
//
// A State is printed as "state KEY rv=V [floor=V]", V being its newest version, and a line for each slice, and for
// each tombstone (gone SLICE rv=V). The sections after "----" are otherwise their owners' business: Run asks for them
// by their first word.
package endpointtest
