package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// imitation feeds an Envoy in the style of the reports that slicecast answers: it reads the same slices as slicecast, but no
// conditions, so an address is used from the moment it stands in a slice until it is dropped from it, and changes are gathered
// for a period before they are passed on. It imitates a way of consuming slices, no product.
type imitation struct {
	file, service string
	seen          []netip.AddrPort
}

// StartImitation writes the first endpoints into the returned file and keeps it up to date, once a period, until the sandbox is
// closed or stop is called. The file is an Envoy's EDSFile.
func (s *Sandbox) StartImitation(ctx context.Context, cp ControlPlane, service string, period time.Duration) (file string, stop func(), err error) {
	im := &imitation{file: filepath.Join(s.dir, "imitation", "eds.json"), service: service}
	if err := os.MkdirAll(filepath.Dir(im.file), 0o755); err != nil {
		return "", nil, err
	}
	if err := im.update(ctx, cp); err != nil {
		return "", nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-running.Done():
				return
			}
			if err := im.update(running, cp); err != nil && running.Err() == nil {
				s.log.Error("imitation not updated", "err", err)
			}
		}
	}()
	stop = func() { cancel(); <-done }
	s.onClose(func() error { stop(); return nil })
	return im.file, stop, nil
}

// update writes the file if the addresses changed. Envoy follows renames in the file's folder.
func (im *imitation) update(ctx context.Context, cp ControlPlane) error {
	all, err := cp.Slices(ctx)
	if err != nil {
		return err
	}
	addresses := AllEndpoints(all)
	if im.seen != nil && slices.Equal(im.seen, addresses) {
		return nil
	}
	var endpoints []any
	for _, a := range addresses {
		endpoints = append(endpoints, object{"endpoint": object{"address": socketAddress(a)}})
	}
	data, err := json.Marshal(object{"resources": []any{object{
		"@type":        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		"cluster_name": im.service,
		"endpoints":    []any{object{"lb_endpoints": endpoints}},
	}}})
	if err != nil {
		return err
	}
	temporary := im.file + ".tmp"
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return fmt.Errorf("write the imitation's endpoints: %w", err)
	}
	if err := os.Rename(temporary, im.file); err != nil {
		return fmt.Errorf("write the imitation's endpoints: %w", err)
	}
	im.seen = addresses
	return nil
}
