package sandbox

import (
	"cmp"
	"slices"
)

// podState is what a deployment controller knows of a pod.
type podState struct {
	name                        string
	number                      int // Of creation: higher is newer.
	current, ready, terminating bool
}

// plan is one step of a deployment controller: how many pods of the current version to create, and which pods to delete now.
// It has the rules of Kubernetes: terminating pods count for nothing (but for Recreate, which waits for their end), never more
// than replicas + maxSurge others exist, and no ready pod is deleted while that would leave fewer than replicas - maxUnavailable.
func plan(w Workload, pods []podState) (create int, remove []string) {
	var live, old, current []podState
	for _, p := range pods {
		if p.terminating {
			continue
		}
		live = append(live, p)
		if p.current {
			current = append(current, p)
		} else {
			old = append(old, p)
		}
	}
	if surplus := len(current) - w.Replicas; surplus > 0 {
		return 0, names(weakestFirst(current)[:surplus])
	}
	if w.Recreate && (len(old) > 0 || len(pods) > len(live) && len(current) == 0) {
		return 0, names(old)
	}
	if w.Recreate {
		return w.Replicas - len(current), nil
	}
	create = max(0, min(w.Replicas-len(current), w.Replicas+w.MaxSurge-len(live)))
	return create, names(removable(w, live, old, current))
}

// removable are the old pods that may go now: those that are not ready first, then ready ones while enough stay.
func removable(w Workload, live, old, current []podState) []podState {
	least := w.Replicas - w.MaxUnavailable
	notReadyCurrent := len(current) - countReady(current)
	room := len(live) - least - notReadyCurrent // As the deployment controller bounds a clean-up and a scale-down.
	ready := countReady(live) - least
	var gone []podState
	for _, p := range weakestFirst(old) {
		switch {
		case room <= 0:
			return gone
		case !p.ready:
		case ready <= 0:
			continue
		default:
			ready--
		}
		room--
		gone = append(gone, p)
	}
	return gone
}

func countReady(pods []podState) (n int) {
	for _, p := range pods {
		if p.ready {
			n++
		}
	}
	return n
}

// weakestFirst orders pods as a replica set deletes them: not ready before ready, newer before older.
func weakestFirst(pods []podState) []podState {
	return slices.SortedFunc(slices.Values(pods), func(a, b podState) int {
		if a.ready != b.ready {
			if b.ready {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.number, a.number)
	})
}

func names(pods []podState) []string {
	var all []string
	for _, p := range pods {
		all = append(all, p.name)
	}
	return all
}
