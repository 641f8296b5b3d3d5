package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// DirUID is the identity of a cluster that is a folder of manifests.
const DirUID = "dir"

// DirConfig says which folder a Dir source reads.
type DirConfig struct {
	Path       string        // of the folder
	Namespaces []string      // give slices of these only; none means all
	Selector   string        // label selector that slices must match; "" means all
	Rescan     time.Duration // between looks at the folder although nothing was heard of it; 30 s
	Log        *slog.Logger  // nil: discarded
}

// Dir is the Source that watches a folder of EndpointSlice manifests: *.yaml, *.yml and *.json, not those whose name
// begins with a dot.
//
// A file that replaces another by a rename, as Kubernetes mounts and careful writers do it, is read at once; one
// that is written in place is read when the writer has paused. A file that is removed is a deletion; a file that is
// not good keeps its last good content. A folder that cannot be read, or that is empty when first seen, is an error
// and removes nothing.
type Dir struct {
	cfg    DirConfig
	extent extent
	f      *folder
	looks  chan chan struct{} // Floor wants Watch to look now
}

// NewDir makes a source from a folder; it does not look into it.
func NewDir(cfg DirConfig) (*Dir, error) {
	if cfg.Path == "" {
		return nil, errors.New("folder of manifests without a path")
	}
	x, err := parseExtent(cfg.Namespaces, cfg.Selector)
	if err != nil {
		return nil, err
	}
	cfg.Rescan = orDefault(cfg.Rescan, 30*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Dir{cfg: cfg, extent: x, f: newFolder(cfg.Path, cfg.Log), looks: make(chan chan struct{})}, nil
}

// Extent is what of a cluster the source gives, for Config.Extent. The folder belongs to it, since another folder may hold
// anything.
func (d *Dir) Extent() string {
	path, err := filepath.Abs(d.cfg.Path)
	if err != nil {
		path = d.cfg.Path
	}
	return "folder=" + path + " " + d.extent.String()
}

// UID implements Source: always DirUID.
func (d *Dir) UID(context.Context) (string, error) { return DirUID, nil }

// Floor implements Source: it has the running Watch look at the folder and report.
func (d *Dir) Floor(ctx context.Context) (uint64, error) {
	done := make(chan struct{})
	select {
	case d.looks <- done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case <-done:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// dirWatch is one running Watch.
type dirWatch struct {
	d      *Dir
	scope  Scope
	handle func(Update)
	fs     *fsnotify.Watcher
	events chan fsnotify.Event // of fs; nil when there is none
	errs   chan error
	listed bool
	lost   bool
	moved  bool // the last event was the old name of a rename: the next new name is whole
}

// Watch implements Source.
func (d *Dir) Watch(ctx context.Context, scope Scope, handle func(Update)) error {
	dw := &dirWatch{d: d, scope: scope, handle: handle}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		d.cfg.Log.Warn("changes of the folder cannot be notified: it is only looked at from time to time", "err", err, "every", d.cfg.Rescan)
	} else {
		defer func() { _ = fs.Close() }()
		dw.fs, dw.events, dw.errs = fs, fs.Events, fs.Errors
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(dw.look())
		case done := <-d.looks:
			timer.Reset(dw.look())
			close(done)
		case e := <-dw.events:
			if dw.event(e) {
				timer.Reset(dw.look())
			} else if wait, ok := dw.settle(); ok {
				timer.Reset(wait)
			}
		case err := <-dw.errs:
			d.cfg.Log.Debug("notifications of the folder were lost", "err", err)
			timer.Reset(dw.look())
		}
	}
}

// event takes a notification; it reports whether to look at once.
func (dw *dirWatch) event(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	moved := dw.moved
	dw.moved = e.Has(fsnotify.Rename)
	switch {
	case name == "..data":
		return e.Has(fsnotify.Create) // Kubernetes has swapped the whole content
	case !isManifest(name):
		return false
	case e.Has(fsnotify.Create) && moved:
		delete(dw.d.f.busy, name)
		return true
	case e.Has(fsnotify.Create), e.Has(fsnotify.Write):
		dw.d.f.wrote(name, time.Now())
		return false
	default:
		return e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	}
}

// settle says when the first of the files that are being written may be read.
func (dw *dirWatch) settle() (time.Duration, bool) {
	var first time.Time
	for _, w := range dw.d.f.busy {
		if t := w.ready(); first.IsZero() || t.Before(first) {
			first = t
		}
	}
	return max(0, time.Until(first)), !first.IsZero()
}

// look reads the folder, reports what it holds, and says when to look again.
func (dw *dirWatch) look() time.Duration {
	f, now := dw.d.f, time.Now()
	if dw.fs != nil {
		// Again each time: the folder may be another one by now. A folder that is watched already costs nothing.
		if err := dw.fs.Add(dw.d.cfg.Path); err != nil {
			dw.d.cfg.Log.Debug("the folder cannot be watched", "err", err)
		}
	}
	dw.handle(Update{Kind: Listing})
	changed, again, err := f.scan(now)
	if err != nil {
		dw.lost = true
		dw.handle(Update{Kind: Lost, Err: err})
		return min(2*time.Second, dw.d.cfg.Rescan)
	}
	if changed || !dw.listed {
		dw.handle(dw.list(now))
		dw.listed = true
	} else {
		dw.handle(Update{Kind: Heard})
	}
	if again.IsZero() {
		return dw.d.cfg.Rescan
	}
	return max(0, again.Sub(now))
}

// list makes a list of what the folder holds.
func (dw *dirWatch) list(now time.Time) Update {
	found, partial := dw.d.f.all()
	u := Update{Kind: Listed, Unversioned: true, Partial: partial, Live: dw.listed}
	for _, es := range found {
		if !dw.d.extent.has(es.Namespace, es.Labels) {
			continue
		}
		sl, skips, err := Translate(dw.scope.Cluster, dw.scope.Generation, es)
		u.Skips.Merge(skips)
		if err != nil {
			dw.d.cfg.Log.Debug("an EndpointSlice is not published", "err", err)
			continue
		}
		sl.Observed = now
		u.Slices = append(u.Slices, sl)
	}
	return u
}

// String names the source in logs.
func (d *Dir) String() string { return fmt.Sprintf("dir:%s", d.cfg.Path) }
