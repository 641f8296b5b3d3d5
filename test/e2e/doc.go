// Package e2e holds the promises of slicecast, one file each, tried on the whole: the built binary, a real Envoy, real
// gRPC streams, pods that are processes, and a control plane that is either the real Kubernetes API server with its
// controllers or folders of manifests. Everything runs inside one network namespace that the test makes.
package e2e
