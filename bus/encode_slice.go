// Pure: slices into protobuf.

package bus

import (
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
)

func sizeOfSlice(s *endpoint.Slice) int {
	n := sizeOfText(s.Name) + sizeOfText(s.UID) + sizeOfText(s.TerminatingPolicy) + sizeOfText(s.FailoverPolicy) +
		sizeOfNumber(uint64(s.Translator)) + sizeOfTime(s.Observed) + sizeOfTime(s.Triggered)
	if !s.Version.IsZero() {
		n += sizeOfPart(sizeOfVersion(s.Version))
	}
	for i := range s.Ports {
		n += sizeOfPart(sizeOfPort(&s.Ports[i]))
	}
	for i := range s.Endpoints {
		n += sizeOfPart(sizeOfEndpoint(&s.Endpoints[i]))
	}
	return n
}

func (w *writer) slice(s *endpoint.Slice) {
	w.text(1, s.Name)
	w.text(2, s.UID)
	w.version(3, s.Version)
	for i := range s.Ports {
		p := &s.Ports[i]
		w.part(4, sizeOfPort(p))
		w.text(1, p.Name)
		w.number(2, uint64(p.Number))
		w.text(3, p.AppProtocol)
	}
	for i := range s.Endpoints {
		w.part(5, sizeOfEndpoint(&s.Endpoints[i]))
		w.endpoint(&s.Endpoints[i])
	}
	w.text(6, s.TerminatingPolicy)
	w.text(7, s.FailoverPolicy)
	w.number(8, uint64(s.Translator))
	w.time(9, s.Observed)
	w.time(10, s.Triggered)
}

func sizeOfPort(p *endpoint.Port) int {
	return sizeOfText(p.Name) + sizeOfNumber(uint64(p.Number)) + sizeOfText(p.AppProtocol)
}

func sizeOfEndpoint(e *endpoint.Endpoint) int {
	return sizeOfAddress(e.Addr) + sizeOfConditions(e.Conditions) +
		sizeOfText(e.Zone) + sizeOfText(e.Node) + sizeOfList(e.ZoneHints) + sizeOfList(e.NodeHints) +
		sizeOfText(e.TargetKind) + sizeOfText(e.TargetName) + sizeOfText(e.TargetUID) + sizeOfText(e.Hostname)
}

func (w *writer) endpoint(e *endpoint.Endpoint) {
	w.address(1, e.Addr)
	w.conditions(2, e.Conditions)
	w.text(5, e.Zone)
	w.text(6, e.Node)
	w.list(7, e.ZoneHints)
	w.list(8, e.NodeHints)
	w.text(9, e.TargetKind)
	w.text(10, e.TargetName)
	w.text(11, e.TargetUID)
	w.text(12, e.Hostname)
}

func sizeOfRef(r *endpoint.Ref) int {
	n := sizeOfText(r.Name) + sizeOfNumber(uint64(r.Translator)) + sizeOfTime(r.Observed)
	if !r.Version.IsZero() {
		n += sizeOfPart(sizeOfVersion(r.Version))
	}
	return n
}

func (w *writer) ref(r *endpoint.Ref) {
	w.text(1, r.Name)
	w.version(2, r.Version)
	w.number(3, uint64(r.Translator))
	w.time(4, r.Observed)
}

func sizeOfTransition(t *endpoint.Transition) int {
	n := sizeOfAddress(t.Addr)
	for _, c := range [...]endpoint.Conditions{t.Before, t.After} {
		if c&endpoint.Absent == 0 {
			n += sizeOfPart(sizeOfConditions(c))
		}
	}
	return n
}

func (w *writer) transition(t *endpoint.Transition) {
	w.address(1, t.Addr)
	for i, c := range [...]endpoint.Conditions{t.Before, t.After} {
		if c&endpoint.Absent == 0 {
			w.part(2+i, sizeOfConditions(c))
			w.conditions(1, c)
		}
	}
}

// conditions are three fields from first on.
func (w *writer) conditions(first int, c endpoint.Conditions) {
	w.flag(first, c&endpoint.Ready != 0)
	w.flag(first+1, c&endpoint.Serving != 0)
	w.flag(first+2, c&endpoint.Terminating != 0)
}

func sizeOfConditions(c endpoint.Conditions) int {
	return sizeOfFlag(c&endpoint.Ready != 0) + sizeOfFlag(c&endpoint.Serving != 0) + sizeOfFlag(c&endpoint.Terminating != 0)
}

// version writes nothing for the zero Version.
func (w *writer) version(field int, v endpoint.Version) {
	if v.IsZero() {
		return
	}
	w.part(field, sizeOfVersion(v))
	w.number(1, v.Generation)
	w.number(2, v.Resource)
}

func sizeOfVersion(v endpoint.Version) int {
	return sizeOfNumber(v.Generation) + sizeOfNumber(v.Resource)
}

// time writes nothing for the zero time.
func (w *writer) time(field int, t time.Time) {
	if t.IsZero() {
		return
	}
	w.part(field, sizeOfInstant(t))
	w.number(1, uint64(t.Unix())) //nolint:gosec // A negative number is written as its two's complement.
	w.number(2, uint64(t.Nanosecond()))
}

// sizeOfTime is the size of the whole field.
func sizeOfTime(t time.Time) int {
	if t.IsZero() {
		return 0
	}
	return sizeOfPart(sizeOfInstant(t))
}

func sizeOfInstant(t time.Time) int {
	return sizeOfNumber(uint64(t.Unix())) + sizeOfNumber(uint64(t.Nanosecond())) //nolint:gosec // as in time
}
