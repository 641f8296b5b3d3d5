package watcher

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

const (
	// writeQuiet is how long a file that is written in place must be left alone before it is read.
	writeQuiet = 10 * time.Millisecond
	// writeLimit is how long a file that is never left alone goes unread.
	writeLimit = 500 * time.Millisecond
	// removeGrace is how long a file must be gone before its slices are: editors replace files in two steps.
	removeGrace = 100 * time.Millisecond
)

// folder is what a folder of manifests holds. The goroutine of the running Watch owns it.
type folder struct {
	path  string
	log   *slog.Logger
	files map[string]*manifest
	self  os.FileInfo         // of the folder whose files are held
	busy  map[string]*writing // files that are being written in place
	twice map[object]twoFiles // slices that two files define, as logged
}

// manifest is one file.
type manifest struct {
	data   []byte
	slices []*discoveryv1.EndpointSlice // last good content
	good   bool                         // there has been a good content
	bad    string                       // why data is not good; empty when it is
	gone   time.Time                    // since when the file is not there; zero when it is
}

// writing is a time span of writes to a file.
type writing struct{ first, last time.Time }

// twoFiles are the two that define the same slice; the first one wins.
type twoFiles struct{ first, second string }

func newFolder(path string, log *slog.Logger) *folder {
	return &folder{path: path, log: log, files: map[string]*manifest{}, busy: map[string]*writing{}, twice: map[object]twoFiles{}}
}

// isManifest reports whether a file name is one that is read.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// scan reads the folder. It reports whether the slices may have changed, and when to look again although nothing
// happens (zero: never). An error leaves all as it was.
func (f *folder) scan(now time.Time) (changed bool, again time.Time, err error) {
	names, self, err := f.names()
	if err != nil {
		return false, again, err
	}
	if len(names) == 0 && (len(f.files) == 0 || !os.SameFile(self, f.self)) {
		return false, again, fmt.Errorf("folder %s holds no manifest (*.yaml, *.yml, *.json)", f.path)
	}
	f.self = self
	soon := func(t time.Time) {
		if again.IsZero() || t.Before(again) {
			again = t
		}
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		if w := f.busy[name]; w != nil {
			if ready := w.ready(); ready.After(now) {
				there[name] = f.files[name] != nil
				soon(ready)
				continue
			}
			delete(f.busy, name)
		}
		read, differs := f.read(name)
		there[name] = read
		changed = changed || differs
	}
	maps.DeleteFunc(f.busy, func(name string, _ *writing) bool { return !slices.Contains(names, name) })
	for name, m := range f.files {
		if there[name] {
			m.gone = time.Time{}
			continue
		}
		if m.gone.IsZero() {
			m.gone = now
		}
		if end := m.gone.Add(removeGrace); end.After(now) {
			soon(end)
			continue
		}
		delete(f.files, name)
		changed = true
	}
	return changed, again, nil
}

// names lists the manifests of the folder, sorted.
func (f *folder) names() ([]string, os.FileInfo, error) {
	self, err := os.Stat(f.path)
	if err != nil {
		return nil, nil, fmt.Errorf("folder of manifests: %w", err)
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, nil, fmt.Errorf("folder of manifests: %w", err)
	}
	var names []string
	for _, e := range entries {
		if isManifest(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, self, nil
}

// read reads a file, if its bytes are new. It reports whether the file is there and whether its slices differ.
func (f *folder) read(name string) (there, differs bool) {
	m := f.files[name]
	path := filepath.Join(f.path, name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false
	}
	if m == nil {
		m = &manifest{}
		f.files[name] = m
		differs = true
	} else if err == nil && m.bad == "" && bytes.Equal(data, m.data) {
		return true, false
	}
	if err == nil {
		var found []*discoveryv1.EndpointSlice
		if found, err = parseManifest(path, data); err == nil {
			m.data, m.slices, m.good, m.bad = data, found, true, ""
			return true, true
		}
	}
	if m.bad != err.Error() {
		m.bad = err.Error()
		f.log.Warn("a manifest is not good: its last good content stays", "err", err)
	}
	return true, differs
}

// all gives the slices of all files; of two files that define the same slice the first by name wins. partial says
// that a file has never been good, so that nobody knows what it holds.
func (f *folder) all() (found []*discoveryv1.EndpointSlice, partial bool) {
	owner := map[object]string{}
	twice := map[object]twoFiles{}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		m := f.files[name]
		partial = partial || !m.good
		for _, es := range m.slices {
			id := object{es.Namespace, es.Name}
			if first, ok := owner[id]; ok {
				pair := twoFiles{first, name}
				if twice[id] = pair; f.twice[id] != pair {
					f.log.Warn("two files define the same EndpointSlice: the first by name wins",
						"slice", id.namespace+"/"+id.name, "first", first, "second", name)
				}
				continue
			}
			owner[id] = name
			found = append(found, es)
		}
	}
	f.twice = twice
	return found, partial
}

// wrote notes that a file was written in place.
func (f *folder) wrote(name string, now time.Time) {
	if w := f.busy[name]; w != nil {
		w.last = now
		return
	}
	f.busy[name] = &writing{now, now}
}

// ready says when a file that is being written may be read.
func (w *writing) ready() time.Time {
	if end := w.first.Add(writeLimit); end.Before(w.last.Add(writeQuiet)) {
		return end
	}
	return w.last.Add(writeQuiet)
}
