package watcher_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicecast/slicecast/bus"
	"github.com/slicecast/slicecast/watcher"
)

// folder is a folder of manifests that is a cluster, on the real bus.
type folder struct {
	t    *testing.T
	e    *bus.Embedded
	path string
	v    *view
}

func newFolder(t *testing.T) *folder {
	e := startBus(t)
	return &folder{t: t, e: e, path: filepath.Join(t.TempDir(), "manifests"), v: read(t, connect(t, e, "reader"))}
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// watch runs a watcher of the folder, or of another.
func (f *folder) watch(cfg watcher.DirConfig, change ...func(*watcher.Config)) (w *watcher.Watcher, ev *counted, stop func()) {
	f.t.Helper()
	if cfg.Path == "" {
		cfg.Path = f.path
	}
	cfg.Rescan = 200 * time.Millisecond
	d, err := watcher.NewDir(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	change = append(change, func(c *watcher.Config) { c.Extent = d.Extent() })
	return watch(f.t, connect(f.t, f.e, "watcher"), d, change...)
}

// holds waits until the bus holds these slices, as "name address", and no other.
func (f *folder) holds(what string, want ...string) {
	f.t.Helper()
	f.v.until(f.t, func() string { return what + ": the bus holds " + strings.Join(f.live(), ", ") }, func() bool {
		return strings.Join(f.live(), ", ") == strings.Join(want, ", ")
	})
}

func (f *folder) live() (out []string) {
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		n, ok := f.v.entries[name]
		if ok && !n.Gone && n.Event != nil && len(n.Event.Slice.Endpoints) > 0 {
			out = append(out, name+" "+n.Event.Slice.Endpoints[0].Addr.String())
		}
	}
	return out
}

// asks waits until the watcher has looked at the folder once more, whatever it finds.
func (f *folder) asks(w *watcher.Watcher) {
	f.t.Helper()
	for range 2 {
		_, _ = w.Floor(f.t.Context()) // an answer, or that it is not ready, is fine: it has looked
	}
}

func (f *folder) make() {
	f.t.Helper()
	if err := os.Mkdir(f.path, 0o700); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) remove(path string) {
	f.t.Helper()
	if err := os.RemoveAll(path); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) versions() (news int, versions map[string]uint64) {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	versions = map[string]uint64{}
	for name, n := range f.v.entries {
		versions[name] = n.Version.Resource
	}
	return f.v.news, versions
}

func TestAnEmptyMissingOrOtherFolderDeletesNothing(t *testing.T) {
	f := newFolder(t)
	f.make()
	put(t, f.file("a.yaml"), text("a", "10.0.0.1"))
	put(t, f.file("b.yaml"), text("b", "10.0.0.2"))
	w, _, stop := f.watch(watcher.DirConfig{})
	f.holds("start", "a 10.0.0.1", "b 10.0.0.2")
	// The folder goes while it is watched, and another, empty one takes its place.
	if err := os.Rename(f.path, f.path+".away"); err != nil {
		t.Fatal(err)
	}
	f.asks(w)
	f.make()
	f.asks(w)
	if w.Ready() {
		t.Error("ready without its folder")
	}
	f.holds("a folder that went", "a 10.0.0.1", "b 10.0.0.2")
	stop()
	// The next process finds it empty, then missing.
	for _, what := range []string{"an empty folder", "a missing folder"} {
		w, ev, stop := f.watch(watcher.DirConfig{})
		f.asks(w)
		f.asks(w)
		if puts, _ := ev.counts(); puts != 0 || w.Ready() {
			t.Errorf("%s: %d writes, ready %v", what, puts, w.Ready())
		}
		stop()
		f.remove(f.path)
	}
	f.holds("an empty and a missing folder", "a 10.0.0.1", "b 10.0.0.2")
	if err := os.Rename(f.path+".away", f.path); err != nil {
		t.Fatal(err)
	}
	w, ev, _ := f.watch(watcher.DirConfig{})
	f.asks(w)
	if puts, _ := ev.counts(); puts != 0 {
		t.Errorf("%d writes when it was back", puts)
	}
}

func TestTheLastFileRemovedWhileWatchedIsADeletion(t *testing.T) {
	f := newFolder(t)
	f.make()
	put(t, f.file("a.yaml"), text("a", "10.0.0.1"))
	f.watch(watcher.DirConfig{})
	f.holds("start", "a 10.0.0.1")
	f.remove(f.file("a.yaml"))
	f.holds("removed")
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	if n := f.v.entries["a"]; !n.Gone {
		t.Errorf("no tombstone: %+v", n)
	}
}

func TestAChangedFileTakesTheNextVersionWhateverItSaysOfItself(t *testing.T) {
	f := newFolder(t)
	f.make()
	ignored := strings.Replace(text("a", "10.0.0.1"), "{name: a,", `{name: a, uid: of-the-file, resourceVersion: "900000",`, 1)
	put(t, f.file("a.yaml"), ignored)
	put(t, f.file("b.yaml"), text("b", "10.0.0.2"))
	_, _, stop := f.watch(watcher.DirConfig{})
	f.holds("start", "a 10.0.0.1", "b 10.0.0.2")
	_, before := f.versions()
	put(t, f.file("a.yaml"), strings.Replace(ignored, "10.0.0.1", "10.0.0.9", 1))
	f.holds("changed", "a 10.0.0.9", "b 10.0.0.2")
	_, after := f.versions()
	if highest := max(before["a"], before["b"]); highest > 100 || after["a"] != highest+1 || after["b"] != before["b"] {
		t.Errorf("versions before %v, after %v", before, after)
	}
	f.v.mu.Lock()
	if uid := f.v.entries["a"].Event.Slice.UID; uid == "of-the-file" || f.v.record.UID != watcher.DirUID {
		t.Errorf("uid %q, record %+v", uid, f.v.record)
	}
	f.v.mu.Unlock()
	stop()
	// What changed, came and went between two processes.
	put(t, f.file("b.yaml"), text("b", "10.0.0.8"))
	put(t, f.file("c.yaml"), text("c", "10.0.0.3"))
	f.remove(f.file("a.yaml"))
	news, _ := f.versions()
	f.watch(watcher.DirConfig{})
	f.holds("restarted", "b 10.0.0.8", "c 10.0.0.3")
	if now, _ := f.versions(); now != news+3 {
		t.Errorf("%d messages for three changes", now-news)
	}
}

func TestAFileThatWasNeverGoodLetsNothingGo(t *testing.T) {
	f := newFolder(t)
	f.make()
	put(t, f.file("a.yaml"), text("a", "10.0.0.1"))
	put(t, f.file("b.yaml"), text("b", "10.0.0.2"))
	_, _, stop := f.watch(watcher.DirConfig{})
	f.holds("start", "a 10.0.0.1", "b 10.0.0.2")
	put(t, f.file("b.yaml"), "kind: [")
	put(t, f.file("a.yaml"), text("a", "10.0.0.9"))
	f.holds("a bad file keeps its last good content", "a 10.0.0.9", "b 10.0.0.2")
	stop()
	_, _, stop = f.watch(watcher.DirConfig{})
	put(t, f.file("a.yaml"), text("a", "10.0.0.8"))
	f.holds("nobody knows what the bad file holds", "a 10.0.0.8", "b 10.0.0.2")
	f.remove(f.file("b.yaml"))
	f.holds("now it is known", "a 10.0.0.8")
	stop()
}

func TestAFolderIsNarrowedByNamespaceAndLabel(t *testing.T) {
	f := newFolder(t)
	f.make()
	put(t, f.file("a.yaml"), text("a", "10.0.0.1"))
	put(t, f.file("b.yaml"), strings.Replace(text("b", "10.0.0.2"), "namespace: shop", "namespace: other", 1))
	put(t, f.file("c.yaml"), strings.Replace(text("c", "10.0.0.3"), "labels: {", "labels: {tier: back, ", 1))
	put(t, f.file("d.yaml"), text("d", "10.0.0.4"))
	put(t, f.file("e.yaml"), text("e", "10.0.0.5"))
	_, _, stop := f.watch(watcher.DirConfig{})
	f.holds("all", "a 10.0.0.1", "b 10.0.0.2", "c 10.0.0.3", "d 10.0.0.4", "e 10.0.0.5")
	stop()
	_, _, stop = f.watch(watcher.DirConfig{Namespaces: []string{"shop"}})
	f.holds("one of five by namespace needs no confirmation", "a 10.0.0.1", "c 10.0.0.3", "d 10.0.0.4", "e 10.0.0.5")
	stop()
	w, _, stop := f.watch(watcher.DirConfig{Namespaces: []string{"shop"}, Selector: "tier=back"})
	put(t, f.file("c.yaml"), strings.Replace(text("c", "10.0.0.9"), "labels: {", "labels: {tier: back, ", 1))
	f.holds("three of four are held", "a 10.0.0.1", "c 10.0.0.9", "d 10.0.0.4", "e 10.0.0.5")
	if s := w.Status(); s.HeldRemovals != 3 || !s.Ready {
		t.Errorf("status %+v", s)
	}
	stop()
	f.watch(watcher.DirConfig{Namespaces: []string{"shop"}, Selector: "tier=back"}, func(c *watcher.Config) { c.ConfirmRemoval = true })
	f.holds("confirmed", "c 10.0.0.9")
}

func TestAnotherFolderIsHeldAsAnotherClusterIsRefused(t *testing.T) {
	f := newFolder(t)
	f.make()
	put(t, f.file("a.yaml"), text("a", "10.0.0.1"))
	put(t, f.file("b.yaml"), text("b", "10.0.0.2"))
	_, _, stop := f.watch(watcher.DirConfig{})
	f.holds("start", "a 10.0.0.1", "b 10.0.0.2")
	stop()
	other := t.TempDir()
	put(t, filepath.Join(other, "c.yaml"), text("c", "10.0.0.3"))
	_, _, stop = f.watch(watcher.DirConfig{Path: other})
	f.holds("a slip of the pen in the path removes nothing", "a 10.0.0.1", "b 10.0.0.2", "c 10.0.0.3")
	stop()
	c := newCluster()
	c.set("cart", "d", "10.0.0.4")
	w, ev, _ := watch(t, connect(t, f.e, "kube"), &source{c: c})
	for w.Status().Why != "the bus knows this cluster name by another identity" { // bounded by the test's own time
		_, _ = w.Floor(t.Context())
	}
	c.set("cart", "d", "10.0.0.5")
	f.holds("a Kubernetes cluster of the same name", "a 10.0.0.1", "b 10.0.0.2", "c 10.0.0.3")
	if puts, _ := ev.counts(); puts != 0 || w.Ready() {
		t.Errorf("%d writes, ready %v", puts, w.Ready())
	}
}
