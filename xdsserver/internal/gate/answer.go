package gate

import (
	"time"
)

// Reason says why an Answer is as it is. The set is closed, so that it can be a label of a metric.
type Reason string

// The reasons. The first two are given with Drained, the others without.
const (
	Acknowledged   Reason = "acknowledged"   // every proxy that may have held the address has acknowledged to be without it
	NoService      Reason = "no-service"     // the pod is in no service, and no proxy may hold its address
	NotLeaving     Reason = "not-leaving"    // no slice shows the pod terminating: preStop also runs for liveness restarts
	AlwaysReady    Reason = "always-ready"   // the pod is terminating and its Service publishes it as ready all the same
	LastEndpoint   Reason = "last-endpoint"  // it is the last one of a service and still serves by fallback
	SharedAddress  Reason = "shared-address" // another live pod has the same address and port
	Unacknowledged Reason = "unacknowledged" // the time is up and the proxies in Missing may still hold the address
	Unknown        Reason = "unknown"        // the time is up and what the API server has of the pod is not known
	Cancelled      Reason = "cancelled"      // who asked has gone, or the replica ends
)

// The modes of an Answer.
const (
	ModeRemoved  = "removed"  // no proxy holds the address
	ModeDraining = "draining" // some proxies hold it as DRAINING, as the label slicecast.io/terminating asks
)

// Answer is what a Gate says of a pod. Its JSON form is a contract.
type Answer struct {
	Drained  bool      `json:"drained"`
	Reason   Reason    `json:"reason"`
	Proxies  []Proxy   `json:"proxies"`  // every proxy that was seen to hold the address during the wait
	Missing  []Proxy   `json:"missing"`  // those that may still hold it
	Services []Service `json:"services"` // every service port in which the pod was seen
	WaitedMS Waited    `json:"waited_ms"`
	Mode     string    `json:"mode"`
}

// Proxy is one stream of a proxy.
type Proxy struct {
	Node    string    `json:"node"`
	Address string    `json:"address"`         // peer of the stream
	Replica string    `json:"replica"`         // that has or had the stream
	Since   time.Time `json:"since"`           // when the stream began
	Ended   bool      `json:"ended,omitempty"` // the stream has ended, and the proxy was not heard of again
}

// Service is one port of a service in which a pod is an endpoint.
type Service struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	Port      string `json:"port"`   // its name, "" for the only, unnamed one
	Number    uint16 `json:"number"` // the target port: that of the pod
}

// Waited says how long the steps took, in whole milliseconds.
type Waited struct {
	Seen         int64 `json:"seen"`         // until the pod was known to leave and used nowhere
	Acknowledged int64 `json:"acknowledged"` // from then until no proxy could hold it, or until the answer
}
