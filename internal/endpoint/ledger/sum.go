package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// Sum is a sum modulo 2^128 of Digests: the fingerprint of a set of live slices, kept incrementally.
type Sum struct{ Hi, Lo uint64 }

// Add gives s + o modulo 2^128.
func (s Sum) Add(o Sum) Sum {
	lo, carry := bits.Add64(s.Lo, o.Lo, 0)
	hi, _ := bits.Add64(s.Hi, o.Hi, carry)
	return Sum{hi, lo}
}

// Sub gives s - o modulo 2^128.
func (s Sum) Sub(o Sum) Sum {
	lo, borrow := bits.Sub64(s.Lo, o.Lo, 0)
	hi, _ := bits.Sub64(s.Hi, o.Hi, borrow)
	return Sum{hi, lo}
}

// String gives 32 hexadecimal digits.
func (s Sum) String() string { return fmt.Sprintf("%016x%016x", s.Hi, s.Lo) }

// Bytes gives the 16 bytes of s, big endian.
func (s Sum) Bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.Hi), s.Lo)
}

// SumOf reads what Sum.Bytes wrote.
func SumOf(b []byte) (Sum, error) {
	if len(b) != 16 {
		return Sum{}, fmt.Errorf("sum %s has %d bytes, not 16", hex.EncodeToString(b[:min(len(b), 32)]), len(b))
	}
	return Sum{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

// Digest is what one live slice adds to a Sum: a hash of its place, its version and its content. The version is in
// it because content may return to an earlier value.
func Digest(key endpoint.Key, name string, v endpoint.Version, h endpoint.Hash) Sum {
	b := make([]byte, 0, 160)
	b = append(b, key.String()...)
	b = append(b, '/')
	b = append(b, name...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint64(b, v.Generation)
	b = binary.BigEndian.AppendUint64(b, v.Resource)
	b = append(b, h[:]...)
	full := sha256.Sum256(b)
	return Sum{binary.BigEndian.Uint64(full[:]), binary.BigEndian.Uint64(full[8:])}
}

// OfState gives what a State adds to a Sum: the count and sum of its live slices.
func OfState(st endpoint.State) (count uint64, sum Sum) {
	for i := range st.Slices {
		sl := &st.Slices[i]
		sum = sum.Add(Digest(sl.Key, sl.Name, sl.Version, sl.Hash()))
	}
	return uint64(len(st.Slices)), sum
}
