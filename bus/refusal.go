// Pure: why a message is refused.

package bus

import "errors"

// Why a message is refused; the label values of a metric.
const (
	badSubject  = "subject"  // the subject is none of ours
	badHeader   = "header"   // a header is missing, or means nothing
	badEncoding = "encoding" // the body is compressed in another way, is not what its compression says, or grows too large
	badBody     = "body"     // the body is not the message of its subject
	badContent  = "content"  // the body breaks an invariant: an address, a port, an order, a limit
	badMatch    = "mismatch" // subject, headers and body do not say the same
)

var refusals = [...]string{badSubject, badHeader, badEncoding, badBody, badContent, badMatch}

// refusal is an error with its reason.
type refusal struct {
	reason string
	err    error
}

func refuse(reason string, err error) error { return refusal{reason, err} }

func (r refusal) Error() string { return r.err.Error() }
func (r refusal) Unwrap() error { return r.err }

// refusalOf gives the reason in err.
func refusalOf(err error) string {
	var r refusal
	if errors.As(err, &r) {
		return r.reason
	}
	return badContent
}
