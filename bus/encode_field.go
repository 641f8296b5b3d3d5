// Pure: the fields of protobuf messages, as bytes.

package bus

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// writer appends fields. Those that are zero are left out, as proto3 has it. All field numbers are below 16, so that a
// tag is one byte.
type writer struct {
	b   []byte
	bad string // the first text that is not UTF-8
}

// done gives what was written of a message.
func (w *writer) done(message string) ([]byte, error) {
	if w.bad != "" {
		return nil, fmt.Errorf("encode %s: %q is not UTF-8", message, clip(w.bad))
	}
	return w.b, nil
}

func (w *writer) tag(field int, t protowire.Type) {
	w.b = append(w.b, byte(field<<3)|byte(t)) //nolint:gosec // Fields are below 16.
}

// part begins a message inside the message, of so many bytes. It is written when it is empty, too.
func (w *writer) part(field, size int) {
	w.tag(field, protowire.BytesType)
	w.b = protowire.AppendVarint(w.b, uint64(size)) //nolint:gosec // A size is not negative.
}

func sizeOfPart(size int) int { return 1 + protowire.SizeBytes(size) }

func (w *writer) text(field int, s string) {
	if s == "" {
		return
	}
	w.item(field, s)
}

// item is one of a repeated text; an empty one counts.
func (w *writer) item(field int, s string) {
	if w.bad == "" && !utf8.ValidString(s) {
		w.bad = s
	}
	w.tag(field, protowire.BytesType)
	w.b = protowire.AppendString(w.b, s)
}

func sizeOfText(s string) int {
	if s == "" {
		return 0
	}
	return sizeOfPart(len(s))
}

// list writes the items of a comma-joined list, none of "".
func (w *writer) list(field int, list string) {
	for more := list != ""; more; {
		var item string
		item, list, more = strings.Cut(list, ",")
		w.item(field, item)
	}
}

func sizeOfList(list string) int {
	if strings.IndexByte(list, ',') < 0 { // one item, or none
		return sizeOfText(list)
	}
	n := 0
	for more := true; more; {
		var item string
		item, list, more = strings.Cut(list, ",")
		n += sizeOfPart(len(item))
	}
	return n
}

func (w *writer) number(field int, v uint64) {
	if v == 0 {
		return
	}
	w.tag(field, protowire.VarintType)
	w.b = protowire.AppendVarint(w.b, v)
}

func sizeOfNumber(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func (w *writer) flag(field int, set bool) {
	if set {
		w.tag(field, protowire.VarintType)
		w.b = append(w.b, 1)
	}
}

func sizeOfFlag(set bool) int {
	if set {
		return 2
	}
	return 0
}

// address writes 4 or 16 bytes, and nothing for the zero Addr.
func (w *writer) address(field int, a netip.Addr) {
	switch {
	case a.Is4():
		w.part(field, 4)
		b := a.As4()
		w.b = append(w.b, b[:]...)
	case a.IsValid():
		w.part(field, 16)
		b := a.As16()
		w.b = append(w.b, b[:]...)
	}
}

func sizeOfAddress(a netip.Addr) int {
	if !a.IsValid() {
		return 0
	}
	return sizeOfPart(a.BitLen() / 8)
}
