package kubeproxy

import (
	"slices"
	"strings"
)

// attempts is how often a shorter history is tried: kube-proxy iterates over maps, so it may fail only now and then.
const attempts = 4

// replay plays steps in a new world and gives a difference of the kind that they end in.
func replay(seed uint64, steps []step, what string) *difference {
	for range attempts {
		w := newWorld(seed)
		for _, s := range steps {
			d := w.play(s)
			if d != nil && kind(d.what) == kind(what) {
				return d
			}
			if d != nil {
				break
			}
		}
	}
	return nil
}

// kind is what a difference says before the first colon: what stays the same while its history is shrunk.
func kind(what string) string {
	before, _, _ := strings.Cut(what, ":")
	return before
}

// shrink looks for fewer steps, writes, endpoints and ports that still end in a difference.
func shrink(seed uint64, steps []step, d *difference) ([]step, *difference) {
	try := func(fewer []step) bool {
		found := replay(seed, fewer, d.what)
		if found == nil {
			return false
		}
		steps, d = fewer, found
		return true
	}
	dropSteps := func() {
		for size := len(steps) / 2; size > 0; size /= 2 {
			for at := 0; at+size <= len(steps); {
				if !try(slices.Concat(steps[:at], steps[at+size:])) {
					at += size
				}
			}
		}
	}
	dropSteps()
	for i := range steps {
		for j := 0; j < len(steps[i]); {
			if !try(replace(steps, i, slices.Delete(slices.Clone(steps[i]), j, j+1))) {
				j++
			}
		}
	}
	for i := range steps {
		for j := range steps[i] {
			shrinkSlice(&steps, i, j, try)
		}
	}
	dropSteps()
	return steps, d
}

// shrinkSlice takes endpoints and ports out of the slice of one write.
func shrinkSlice(steps *[]step, i, j int, try func([]step) bool) {
	for k := 0; ; k++ {
		s := (*steps)[i][j].slice
		if s == nil || k >= len(s.Endpoints)+len(s.Ports) {
			return
		}
		less := s.DeepCopy()
		if n := k - len(s.Endpoints); n >= 0 {
			less.Ports = slices.Delete(less.Ports, n, n+1)
		} else {
			less.Endpoints = slices.Delete(less.Endpoints, k, k+1)
		}
		changed := slices.Clone((*steps)[i])
		changed[j].slice = less
		if try(replace(*steps, i, changed)) {
			k--
		}
	}
}

func replace(steps []step, i int, s step) []step {
	out := slices.Clone(steps)
	out[i] = s
	return out
}
