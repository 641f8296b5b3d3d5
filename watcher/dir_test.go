package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds how long a test waits for what has to come.
const patience = 10 * time.Second

// heardOf collects what a source says.
type heardOf struct {
	mu    sync.Mutex
	all   []Update
	moved chan struct{}
}

func (h *heardOf) handle(u Update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, u)
	close(h.moved)
	h.moved = make(chan struct{})
}

// until waits for an update after the first n that is ok, and gives the number of those up to it.
func (h *heardOf) until(t *testing.T, n int, what string, ok func(Update) bool) (Update, int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		all, moved := h.all, h.moved
		h.mu.Unlock()
		for i := n; i < len(all); i++ {
			if ok(all[i]) {
				return all[i], i + 1
			}
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("%s did not come; heard %d updates: %+v", what, len(all), all)
		}
	}
}

// dirRig is a folder that is watched.
type dirRig struct {
	*heardOf
	t    *testing.T
	path string
	d    *Dir
	log  *lines
	n    int
}

func watchDir(t *testing.T, path string) *dirRig {
	t.Helper()
	r := &dirRig{&heardOf{moved: make(chan struct{})}, t, path, nil, &lines{}, 0}
	d, err := NewDir(DirConfig{Path: path, Log: slog.New(slog.NewTextHandler(r.log, nil)), Rescan: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.d = d
	r.run()
	return r
}

// run begins a Watch that ends with the test or by stop.
func (r *dirRig) run() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.d.Watch(ctx, Scope{"east", 1}, r.handle) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

func (r *dirRig) lists(what string, want ...string) Update {
	r.t.Helper()
	var u Update
	u, r.n = r.until(r.t, r.n, fmt.Sprintf("%s: a list of %q", what, want), func(u Update) bool {
		return u.Kind == Listed && slices.Equal(listed(u), want)
	})
	return u
}

func (r *dirRig) loses(what string) {
	r.t.Helper()
	_, r.n = r.until(r.t, r.n, what, func(u Update) bool { return u.Kind == Lost })
}

// never fails if a list of that many slices or fewer has come by now.
func (r *dirRig) never(few int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.all {
		if u.Kind == Listed && len(u.Slices) <= few {
			r.t.Errorf("a list of %q came", listed(u))
		}
	}
}

func listed(u Update) []string {
	var out []string
	for _, s := range u.Slices {
		addr := ""
		if len(s.Endpoints) > 0 {
			addr = " " + s.Endpoints[0].Addr.String()
		}
		out = append(out, s.Name+addr)
	}
	return out
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace writes a file as careful writers do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	writeFile(t, tmp, text)
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderIsReadAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	writeFile(t, a, named("a"))
	writeFile(t, filepath.Join(dir, ".hidden.yaml"), named("hidden"))
	writeFile(t, filepath.Join(dir, "a.yaml~"), named("backup"))
	r := watchDir(t, dir)
	if u := r.lists("start", "a 10.0.0.1"); u.Live || !u.Unversioned || u.Partial {
		t.Errorf("the first list: %+v", u)
	}
	replace(t, a, strings.Replace(named("a"), "10.0.0.1", "10.0.0.2", 1))
	if u := r.lists("rename", "a 10.0.0.2"); !u.Live {
		t.Error("a change is not live")
	}
	writeFile(t, a, strings.Replace(named("a"), "10.0.0.1", "10.0.0.3", 1))
	r.lists("write in place", "a 10.0.0.3")
	writeFile(t, filepath.Join(dir, "b.json"), cartJSON)
	r.lists("new file", "a 10.0.0.3")
	writeFile(t, filepath.Join(dir, "c.yml"), named("c"))
	r.lists("another new file", "a 10.0.0.3", "c 10.0.0.1")
	remove(t, a)
	r.lists("removed file", "c 10.0.0.1")
	remove(t, filepath.Join(dir, "b.json"))
	remove(t, filepath.Join(dir, "c.yml"))
	r.lists("the last file removed is a deletion")
}

func TestAFileThatIsReplacedInTwoStepsDoesNotBlink(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	writeFile(t, a, named("a"))
	r := watchDir(t, dir)
	r.lists("start", "a 10.0.0.1")
	for i := 2; i < 6; i++ { // as an editor does: the old one away, the new one written in parts
		if err := os.Rename(a, a+"~"); err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(named("a"), "10.0.0.1", fmt.Sprintf("10.0.0.%d", i), 1)
		f, err := os.Create(a)
		if err != nil {
			t.Fatal(err)
		}
		cut := strings.Index(text, "endpoints:")
		for _, part := range []string{text[:cut], text[cut:]} {
			if _, err := f.WriteString(part); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		r.lists("replaced", fmt.Sprintf("a 10.0.0.%d", i))
	}
	r.never(0)
}

func TestAMountedVolumeIsSwappedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	version := func(n int, files map[string]string) {
		t.Helper()
		d := filepath.Join(dir, fmt.Sprintf("..v%d", n))
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			writeFile(t, filepath.Join(d, name), text)
		}
		symlink(t, fmt.Sprintf("..v%d", n), filepath.Join(dir, "..data_tmp"))
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		for name := range files {
			if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
				symlink(t, filepath.Join("..data", name), filepath.Join(dir, name))
			}
		}
		if n > 1 {
			remove(t, filepath.Join(dir, fmt.Sprintf("..v%d", n-1)))
		}
	}
	version(1, map[string]string{"a.yaml": named("a"), "b.yaml": named("b")})
	r := watchDir(t, dir)
	r.lists("start", "a 10.0.0.1", "b 10.0.0.1")
	version(2, map[string]string{"a.yaml": strings.Replace(named("a"), "10.0.0.1", "10.0.0.2", 1), "b.yaml": strings.Replace(named("b"), "10.0.0.1", "10.0.0.2", 1)})
	r.lists("swapped", "a 10.0.0.2", "b 10.0.0.2")
	version(3, map[string]string{"a.yaml": named("a"), "c.yaml": named("c")})
	r.lists("one file less, one more", "a 10.0.0.1", "c 10.0.0.1")
	r.never(0)
}

func TestABadFileKeepsItsLastGoodContent(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	writeFile(t, a, named("a"))
	writeFile(t, b, named("b"))
	r := watchDir(t, dir)
	r.lists("start", "a 10.0.0.1", "b 10.0.0.1")
	replace(t, a, "kind: [")
	replace(t, b, strings.Replace(named("b"), "10.0.0.1", "10.0.0.2", 1))
	r.lists("a is bad, b has changed", "a 10.0.0.1", "b 10.0.0.2")
	if n := r.log.count("a.yaml:1: "); n != 1 {
		t.Errorf("the bad file is named %d times:\n%s", n, r.log)
	}
	replace(t, a, strings.Replace(named("a"), "10.0.0.1", "10.0.0.3", 1))
	r.lists("a is good again", "a 10.0.0.3", "b 10.0.0.2")
}

func TestAFileThatWasNeverGoodMakesTheListPartial(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), named("a"))
	writeFile(t, filepath.Join(dir, "b.yaml"), "kind: [")
	r := watchDir(t, dir)
	if u := r.lists("start", "a 10.0.0.1"); !u.Partial {
		t.Error("the list calls itself whole")
	}
	replace(t, filepath.Join(dir, "b.yaml"), named("b"))
	if u := r.lists("mended", "a 10.0.0.1", "b 10.0.0.1"); u.Partial {
		t.Error("the list calls itself partial")
	}
}

func TestTwoFilesOfTheSameSliceAreNamedAndTheFirstWins(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "b.yaml"), named("x"))
	writeFile(t, filepath.Join(dir, "a.yaml"), strings.Replace(named("x"), "10.0.0.1", "10.0.0.2", 1))
	r := watchDir(t, dir)
	r.lists("start", "x 10.0.0.2")
	if r.log.count("first=a.yaml second=b.yaml") != 1 {
		t.Errorf("log:\n%s", r.log)
	}
	remove(t, filepath.Join(dir, "a.yaml"))
	r.lists("the second speaks now", "x 10.0.0.1")
}

func TestAnEmptyOrMissingFolderIsAnErrorAndRemovesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	r := watchDir(t, dir)
	r.loses("a missing folder is an error")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.loses("an empty folder is an error")
	writeFile(t, filepath.Join(dir, "a.yaml"), named("a"))
	r.lists("the first file", "a 10.0.0.1")
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	r.loses("a folder that went is an error")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.loses("another, empty folder is an error")
	writeFile(t, filepath.Join(dir, "a.yaml"), strings.Replace(named("a"), "10.0.0.1", "10.0.0.2", 1))
	r.lists("the new folder is read", "a 10.0.0.2")
	r.never(0)
}

func TestAQueryLooksAtTheFolderAtOnce(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), named("a"))
	r := watchDir(t, dir)
	r.lists("start", "a 10.0.0.1")
	before := func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.all) }()
	if _, err := r.d.Floor(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.all) }(); after == before {
		t.Error("nothing was reported before the answer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.d.Floor(ctx); err == nil {
		// A look that was taken at the same moment is fine too; what must not be is to hang.
		t.Log("answered")
	}
}

func TestAWatchOfTheFolderBeginsAgainWithAList(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), named("a"))
	r := &dirRig{&heardOf{moved: make(chan struct{})}, t, dir, nil, &lines{}, 0}
	d, err := NewDir(DirConfig{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	r.d = d
	stop := r.run()
	r.lists("first", "a 10.0.0.1")
	stop()
	remove(t, filepath.Join(dir, "a.yaml"))
	r.run()
	r.lists("what went between two watches is gone")
}
