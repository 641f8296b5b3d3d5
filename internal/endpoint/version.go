package endpoint

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version orders what is known of one slice, and how far a view is complete: (generation, resourceVersion),
// compared in that order. It is the only order inside a cluster; stream sequences and clocks order nothing.
// The zero Version is before every other.
type Version struct {
	Generation uint64 // of the cluster's record; raised when its history went back or its identity changed
	Resource   uint64 // the resourceVersion, which compares as an integer
}

// Compare gives -1, 0 or 1.
func (v Version) Compare(o Version) int {
	if c := cmp.Compare(v.Generation, o.Generation); c != 0 {
		return c
	}
	return cmp.Compare(v.Resource, o.Resource)
}

// After reports v > o.
func (v Version) After(o Version) bool { return v.Compare(o) > 0 }

// IsZero reports whether v is the version before all others.
func (v Version) IsZero() bool { return v == Version{} }

// String gives "generation/resourceVersion".
func (v Version) String() string { return fmt.Sprintf("%d/%d", v.Generation, v.Resource) }

// ParseVersion reads what Version.String wrote.
func ParseVersion(text string) (Version, error) {
	g, r, ok := strings.Cut(text, "/")
	if !ok {
		return Version{}, fmt.Errorf("version %q is not generation/resourceVersion", clip(text))
	}
	gen, err := strconv.ParseUint(g, 10, 64)
	if err != nil {
		return Version{}, fmt.Errorf("generation of version %q: %w", clip(text), err)
	}
	res, err := strconv.ParseUint(r, 10, 64)
	if err != nil {
		return Version{}, fmt.Errorf("resourceVersion of version %q: %w", clip(text), err)
	}
	return Version{gen, res}, nil
}
