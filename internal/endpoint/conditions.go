package endpoint

import "fmt"

// Conditions are the three conditions of an endpoint with the nil values already resolved (rule R1: nil ready and
// nil serving are true, nil terminating is false), as bits.
type Conditions uint8

// The bits of Conditions. Absent stands alone: the endpoint is not in the slice (used in transitions only).
const (
	Ready Conditions = 1 << iota
	Serving
	Terminating
	Absent Conditions = 0x80
)

// Usable says what rule R3 says of the endpoint on its own: ready endpoints are used, and where a port has none,
// its serving and terminating ones. ready is looked at first (rule R2).
func (c Conditions) Usable() (ready, fallback bool) {
	if c&Absent != 0 {
		return false, false
	}
	if c&Ready != 0 {
		return true, false
	}
	return false, c&Serving != 0 && c&Terminating != 0
}

// String gives "rst" with a dash for each condition that is false, "absent" for Absent.
func (c Conditions) String() string {
	if c == Absent {
		return "absent"
	}
	b := []byte("---")
	for i, bit := range [...]Conditions{Ready, Serving, Terminating} {
		if c&bit != 0 {
			b[i] = "rst"[i]
		}
	}
	return string(b)
}

// ParseConditions reads what Conditions.String wrote.
func ParseConditions(text string) (Conditions, error) {
	if text == "absent" {
		return Absent, nil
	}
	var c Conditions
	if len(text) != 3 {
		return 0, fmt.Errorf("conditions %q are not three of r, s, t and -", clip(text))
	}
	for i, bit := range [...]Conditions{Ready, Serving, Terminating} {
		switch text[i] {
		case "rst"[i]:
			c |= bit
		case '-':
		default:
			return 0, fmt.Errorf("conditions %q are not three of r, s, t and -", clip(text))
		}
	}
	return c, nil
}
