// Package watcher proves the watcher on the real bus: a folder of manifests, an embedded NATS server, and a reader that
// proves its view by checkpoints, through restarts of the watcher. It has no code, only tests.
package watcher
