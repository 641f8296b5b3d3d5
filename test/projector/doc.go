// Package projector proves the projector on the real bus: an embedded NATS server, several replicas, and a writer that
// changes services as fast as the bus takes it. It has no code, only tests.
package projector
