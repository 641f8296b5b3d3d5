// Pure: which messages are of a later contract.

package bus

import (
	"fmt"
	"strconv"
	"strings"
)

// contract is the major version of all that this package reads and writes.
const contract = 1

// notNewer returns ErrNewer for a message of a later major version, whose ce-type says slicecast.v2. Subjects of that
// version are others, and are read by nobody here.
func notNewer(h header) error {
	rest, ok := strings.CutPrefix(h.get("ce-type"), "slicecast.v")
	if !ok {
		return nil
	}
	major, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.ParseUint(major, 10, 32); err == nil && n > contract {
		return fmt.Errorf("%w: version %d, not %d", ErrNewer, n, contract)
	}
	return nil
}
