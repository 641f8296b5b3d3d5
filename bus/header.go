// Pure: the headers of messages. docs/wire.md explains them to outside readers.

package bus

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// header is the headers of a message, with one value for each name, as NATS has them (names keep their case).
type header map[string][]string

func (h header) set(name, value string) { h[name] = []string{value} }

func (h header) get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Names of headers.
const (
	contentType     = "Content-Type"
	contentEncoding = "Content-Encoding"
	protobufType    = "application/protobuf"
	zstdEncoding    = "zstd"

	hOperation  = "Slicecast-Operation"  // what the message says, one of the operations below
	hVersion    = "Slicecast-Version"    // generation/resourceVersion
	hPrevious   = "Slicecast-Previous"   // version that the bus had before, absent when none
	hHash       = "Slicecast-Hash"       // version of the canonical form, ':', 32 hexadecimal digits
	hTranslator = "Slicecast-Translator" // version of the watcher's translation
	hCount      = "Slicecast-Count"      // number of live slices
	hSum        = "Slicecast-Sum"        // sum of their digests, 32 hexadecimal digits
	hFloor      = "Slicecast-Floor"      // version that a State is complete as of
	hAsOf       = "Slicecast-As-Of"      // stream sequence of a checkpoint's count and sum
	hUID        = "Slicecast-Uid"        // of a cluster's record
	hGeneration = "Slicecast-Generation" // of a cluster's record
	hRegion     = "Slicecast-Region"     // of a cluster's record
	hPolicy     = "Slicecast-Policy"     // of a cluster's record
	hScope      = "Slicecast-Scope"      // of a cluster's record
)

// Operations.
const (
	opSet        = "set"        // a slice is live, or a State
	opGone       = "gone"       // a slice is gone
	opCheckpoint = "checkpoint" // a checkpoint
	opCluster    = "cluster"    // a cluster's record
)

// cloud sets the attributes of CloudEvents 1.0 in binary mode. Values are percent-encoded as its HTTP binding has it.
func (h header) cloud(kind, source, id, about string, at time.Time) {
	h.set(contentType, protobufType)
	h.set("ce-specversion", "1.0")
	h.set("ce-type", "slicecast.v1."+kind)
	h.set("ce-source", escape(source))
	h.set("ce-id", escape(id))
	h.set("ce-subject", escape(about))
	if !at.IsZero() {
		h.set("ce-time", at.UTC().Format(time.RFC3339Nano))
	}
}

// eventHeader is all that a headers-only reader needs of an event.
func eventHeader(ev endpoint.Event) header {
	h := header{}
	s := &ev.Slice
	op := opSet
	if ev.Gone {
		op = opGone
	}
	id := s.Key.String() + "/" + s.Name
	h.cloud("event."+op, "/clusters/"+s.Key.Cluster, id+"@"+s.Version.String(), id, s.Observed)
	h.set(hOperation, op)
	h.set(hVersion, s.Version.String())
	h.set(hHash, formatHash(s.Hash()))
	h.set(hTranslator, strconv.FormatUint(uint64(s.Translator), 10))
	if !ev.Previous.IsZero() {
		h.set(hPrevious, ev.Previous.String())
	}
	return h
}

// fillEvent reads into n what eventHeader wrote.
func fillEvent(n *ledger.Notice, h header) error {
	switch op := h.get(hOperation); op {
	case opSet:
	case opGone:
		n.Gone = true
	default:
		return fmt.Errorf("header %s is %q", hOperation, clip(op))
	}
	var err error
	if n.Version, err = endpoint.ParseVersion(h.get(hVersion)); err != nil {
		return fmt.Errorf("header %s: %w", hVersion, err)
	}
	if n.Version.Generation == 0 || n.Version.Resource == 0 {
		return fmt.Errorf("header %s is %s", hVersion, n.Version)
	}
	if _, n.Hash, err = parseHash(h.get(hHash)); err != nil {
		return err
	}
	translator, err := strconv.ParseUint(h.get(hTranslator), 10, 32)
	if err != nil {
		return fmt.Errorf("header %s: %w", hTranslator, err)
	}
	n.Translator = uint32(translator)
	return nil
}

// stateHeader gives count, sum and floor of a State, and its highest version.
func stateHeader(st endpoint.State) header {
	h := header{}
	count, sum := ledger.OfState(st)
	var highest endpoint.Version
	var observed time.Time
	for i := range st.Slices {
		if v := st.Slices[i].Version; v.After(highest) {
			highest, observed = v, st.Slices[i].Observed
		}
	}
	key := st.Key.String()
	h.cloud("state.set", "/clusters/"+st.Key.Cluster, key+"@"+sum.String(), key, observed)
	h.set(hOperation, opSet)
	h.set(hVersion, highest.String())
	h.set(hCount, strconv.FormatUint(count, 10))
	h.set(hSum, sum.String())
	h.set(hFloor, st.Floor.String())
	return h
}

// checkpointHeader is a whole checkpoint, since headers-only readers need it all.
func checkpointHeader(cluster string, cp ledger.Checkpoint) header {
	h := header{}
	asOf := strconv.FormatUint(cp.AsOf, 10)
	h.cloud("checkpoint", "/clusters/"+cluster, cluster+"@"+cp.Complete.String()+"@"+asOf, cluster, cp.Written)
	h.set(hOperation, opCheckpoint)
	h.set(hVersion, cp.Complete.String())
	h.set(hAsOf, asOf)
	h.set(hCount, strconv.FormatUint(cp.Count, 10))
	h.set(hSum, cp.Sum.String())
	return h
}

// headerCheckpoint reads what checkpointHeader wrote.
func headerCheckpoint(h header) (cp ledger.Checkpoint, err error) {
	if op := h.get(hOperation); op != opCheckpoint {
		return cp, fmt.Errorf("header %s is %q, not %s", hOperation, clip(op), opCheckpoint)
	}
	if cp.Complete, err = endpoint.ParseVersion(h.get(hVersion)); err != nil {
		return cp, fmt.Errorf("header %s: %w", hVersion, err)
	}
	if cp.AsOf, err = strconv.ParseUint(h.get(hAsOf), 10, 64); err != nil {
		return cp, fmt.Errorf("header %s: %w", hAsOf, err)
	}
	if cp.Count, err = strconv.ParseUint(h.get(hCount), 10, 64); err != nil {
		return cp, fmt.Errorf("header %s: %w", hCount, err)
	}
	raw, err := hex.DecodeString(h.get(hSum))
	if err != nil {
		return cp, fmt.Errorf("header %s: %w", hSum, err)
	}
	if cp.Sum, err = ledger.SumOf(raw); err != nil {
		return cp, fmt.Errorf("header %s: %w", hSum, err)
	}
	if at := h.get("ce-time"); at != "" {
		if cp.Written, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return cp, fmt.Errorf("header ce-time: %w", err)
		}
	}
	return cp, validCheckpoint(cp)
}

// recordHeader is a whole record, since headers-only readers need it all.
func recordHeader(cluster string, r ledger.Record) header {
	h := header{}
	generation := strconv.FormatUint(r.Generation, 10)
	h.cloud("cluster", "/clusters/"+cluster, cluster+"@"+generation, cluster, time.Time{})
	h.set(hOperation, opCluster)
	h.set(hUID, escape(r.UID))
	h.set(hGeneration, generation)
	if r.Region != "" {
		h.set(hRegion, escape(r.Region))
	}
	if r.Policy != "" {
		h.set(hPolicy, escape(r.Policy))
	}
	if r.Scope != "" {
		h.set(hScope, escape(r.Scope))
	}
	return h
}

// headerRecord reads what recordHeader wrote.
func headerRecord(h header) (r ledger.Record, err error) {
	if op := h.get(hOperation); op != opCluster {
		return r, fmt.Errorf("header %s is %q, not %s", hOperation, clip(op), opCluster)
	}
	if r.Generation, err = strconv.ParseUint(h.get(hGeneration), 10, 64); err != nil {
		return r, fmt.Errorf("header %s: %w", hGeneration, err)
	}
	for _, f := range [...]struct {
		name string
		into *string
	}{{hUID, &r.UID}, {hRegion, &r.Region}, {hPolicy, &r.Policy}, {hScope, &r.Scope}} {
		if *f.into, err = url.PathUnescape(h.get(f.name)); err != nil {
			return r, fmt.Errorf("header %s: %w", f.name, err)
		}
	}
	return r, validRecord(r)
}

func formatHash(h endpoint.Hash) string {
	return strconv.Itoa(endpoint.ContentVersion) + ":" + hex.EncodeToString(h[:])
}

// parseHash reads what formatHash wrote, of this or another version of the canonical form.
func parseHash(text string) (form int, h endpoint.Hash, err error) {
	before, digits, ok := strings.Cut(text, ":")
	if !ok || len(digits) != 2*len(h) {
		return 0, h, fmt.Errorf("header %s %q is not N:hash", hHash, clip(text))
	}
	if form, err = strconv.Atoi(before); err != nil {
		return 0, h, fmt.Errorf("header %s: %w", hHash, err)
	}
	if _, err = hex.Decode(h[:], []byte(digits)); err != nil {
		return 0, h, fmt.Errorf("header %s: %w", hHash, err)
	}
	return form, h, nil
}

// escape percent-encodes what the CloudEvents bindings ask for: space, '"', '%' and all that is not printable ASCII.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c == '"' || c == '%' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
