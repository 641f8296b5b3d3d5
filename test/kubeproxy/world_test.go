package kubeproxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// world is one API server and both sides that watch it.
type world struct {
	api   *apiServer
	kube  *kubeProxy
	cast  *slicecast
	count count
	again []types.NamespacedName // services to compare after the next step, though it may not touch them
}

func newWorld(seed uint64) *world {
	return &world{api: newAPIServer(), kube: newKubeProxy(), cast: newSlicecast(rand.New(rand.NewPCG(seed, 1)))}
}

// play applies a step, lets both sides see it, and compares every service that it touched.
func (w *world) play(s step) (d *difference) {
	touched := map[types.NamespacedName]bool{}
	for _, name := range w.again {
		touched[name] = true
	}
	w.again = nil
	defer func() {
		if r := recover(); r != nil {
			d = &difference{what: fmt.Sprintf("panic: %v\n%s", r, debug.Stack())}
		}
	}()
	for _, one := range s {
		if err := w.write(one, touched); err != nil {
			return &difference{what: "the API server would refuse the object: " + err.Error()}
		}
	}
	w.kube.sync()
	names := make([]types.NamespacedName, 0, len(touched))
	for name := range touched {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		if d := w.compare(name); d != nil {
			return d
		}
	}
	if w.again = w.kube.forget(); len(w.again) > 0 {
		w.kube.sync()
	}
	w.count.steps++
	w.count.writes += len(s)
	return nil
}

// write applies one write and tells both sides.
func (w *world) write(one write, touched map[types.NamespacedName]bool) error {
	if one.service != nil {
		name := types.NamespacedName{Namespace: one.service.Namespace, Name: one.service.Name}
		before, now := w.api.services[name], one.service
		if w.api.services[name] = now; one.gone {
			now = nil
			delete(w.api.services, name)
		}
		w.kube.service(before, now)
		touched[name] = true
		return nil
	}
	events, err := w.api.put(one)
	for _, e := range events {
		w.kube.slice(e)
		w.cast.slice(e)
		for _, s := range [...]*stored{e.before, e.now} {
			if s != nil {
				touched[serviceOf(s.raw)] = true
				touched[kubeServiceOf(s.raw)] = true
			}
		}
	}
	maps.DeleteFunc(touched, func(name types.NamespacedName, _ bool) bool {
		return len(validation.IsDNS1123Label(name.Name)) > 0 // No Service can be called that.
	})
	return err
}
