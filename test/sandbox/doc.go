// Package sandbox is a small cluster on one machine: a network namespace that holds a control plane, pods, a real Envoy, a
// slicecast process and a load driver, so that a rolling restart can be run and every request of it be counted.
//
//	                    network namespace, 10.244.0.0/16 local
//	+---------------------------------------------------------------------------+
//	|  control plane (Files or Kube)  --slices-->  slicecast  --xDS-->  Envoy   |
//	|        |                                        ^                 ^  |    |
//	|     Kubelet --preStop: drain-wait---------------+     Driver -----+  |    |
//	|        +--- pod processes  <----------------- requests --------------+    |
//	+---------------------------------------------------------------------------+
//
// Guarantees:
//   - Nothing leaves the namespace and nothing outlives it: each process is killed by the kernel when its parent dies, and
//     Close waits for all of them.
//   - Pods are processes. One that stops at once on SIGTERM dies as a real one does, with its connections cut by the kernel.
//   - The two control planes obey one interface and run pods through the same Kubelet, so a scenario runs on both. Files gives
//     slices the conditions that the EndpointSlice controller would give; Kube has that very controller.
//   - The Driver counts every request that its schedule asks for, sent or not, exactly once, and never sends one twice.
//   - CheckNoRetries reads from the running Envoy that it neither retries, hedges, ejects nor probes hosts.
//
// It does not imitate kube-proxy, images, volumes, several nodes or restarts of containers.
package sandbox
