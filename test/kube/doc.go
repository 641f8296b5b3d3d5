// Command kube is a Kubernetes control plane in one binary, for tests: etcd,
// kube-apiserver, a few controllers and kubectl, all of them the released code.
//
// Which part runs is chosen by the name it is called by (a link called kubectl)
// or else by the first argument:
//
//	kube etcd ...            etcd's own flags
//	kube kube-apiserver ...  kube-apiserver's own flags
//	kube controllers ...     deployment, replicaset, endpointslice, namespace, garbage collector
//	kube kubectl ...         kubectl's own commands
//	kube up --dir DIR        all of the above but kubectl, as child processes, until SIGTERM
//	kube stop|kill|start --dir DIR NAME
//	                         ends one child of a running "up" (SIGTERM or SIGKILL) and keeps
//	                         it down; starts it again
//
// # Guarantees of up
//
//   - Everything it makes lies in DIR: certificates, token, kubeconfig, etcd's data,
//     NAME.log and NAME.pid of each child. A second "up" in the same DIR is refused.
//   - All addresses are 127.0.0.1; no default route, name service or other host is needed.
//   - The one line on standard output is written when the API server says it is ready, the
//     namespace "default" exists and every controller has filled its caches.
//   - A child that ends without having been asked to is started again with the same
//     arguments, thus the same port. One that keeps ending ends "up", with its last lines
//     of log.
//   - SIGTERM or SIGINT ends the children, then "up". If "up" itself is killed, the kernel
//     kills the children.
//
// # What it does not do
//
// There is no scheduler and no kubelet: whoever tests binds pods and writes their status.
// There is no service account controller, and the admission plugin that would ask for
// service accounts is off.
package main
