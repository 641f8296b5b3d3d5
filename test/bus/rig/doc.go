// Package rig runs the whole path of the bus in one process, and knows what every reader may hold at every moment.
//
//	API (model) -> Source -> two watchers -> EVENTS -> two projectors -> STATE -> two xDS replicas -> ADS clients
//	     |                   (per cluster)                                   +-> plain reader
//	     +--- history of usable endpoints ------------------------------------> oracle
//
// Everything between the model of the API servers and the readers is real: the rooms as cmd joins them, a connection
// to the bus for each role, nats-servers with their stores on disk, gRPC streams. Every role can be held still (as a
// stopped process is) and killed, every server too.
//
// The oracle: at every moment every reader holds, of each service, at least the endpoints that were usable in some one
// state that its API server went through since the reader's last complete view; and when all is quiet, exactly what
// the API server holds.
package rig
