package drainwait

import (
	"fmt"
	"strings"
	"time"
)

// named bounds how many proxies or peers a line names.
const named = 5

// String is the outcome in one line.
func (o Outcome) String() string {
	var b strings.Builder
	switch {
	case o.AskErr != nil && o.Stopped:
		fmt.Fprintf(&b, "not drained: stopped before a drain gate has answered: %v", o.AskErr)
	case o.AskErr != nil:
		fmt.Fprintf(&b, "not drained: no drain gate has answered: %v", o.AskErr)
	case !o.Answer.Drained:
		fmt.Fprintf(&b, "not drained: %s", o.Answer.Reason)
		o.missing(&b)
	default:
		o.connected(&b)
	}
	fmt.Fprintf(&b, "; asked %s", ms(o.Asked))
	if o.AskErr == nil {
		fmt.Fprintf(&b, " (seen %dms, acknowledged %dms)", o.Answer.WaitedMS.Seen, o.Answer.WaitedMS.Acknowledged)
	}
	fmt.Fprintf(&b, ", took %s", ms(o.Took))
	return b.String()
}

func (o Outcome) missing(b *strings.Builder) {
	for i, p := range o.Answer.Missing {
		if i == named {
			fmt.Fprintf(b, " and %d more", len(o.Answer.Missing)-named)
			break
		}
		b.WriteString(map[bool]string{true: ", missing ", false: ", "}[i == 0])
		fmt.Fprintf(b, "%q at %s", p.Node, p.Address)
	}
}

// connected says what became of the connections of a pod that no proxy chooses any more.
func (o Outcome) connected(b *strings.Builder) {
	switch {
	case o.ConnErr != nil:
		fmt.Fprintf(b, "drained: %s; connections unknown: %v", o.Answer.Reason, o.ConnErr)
	case len(o.Ports) == 0:
		fmt.Fprintf(b, "drained: %s; connections not looked at: no port is known", o.Answer.Reason)
	case len(o.Left) == 0:
		fmt.Fprintf(b, "drained: %s; %d connections done", o.Answer.Reason, o.Seen)
	default:
		fmt.Fprintf(b, "drained: %s; %d of %d connections still in use, from ", o.Answer.Reason, len(o.Left), o.Seen)
		for i, c := range o.Left {
			if i == named {
				fmt.Fprintf(b, " and %d more", len(o.Left)-named)
				break
			}
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(c.Remote.String())
		}
		if o.Answer.Mode != "draining" {
			b.WriteString(" (a proxy that goes on sending may have active health checks without ignore_health_on_host_removal)")
		}
	}
}

func ms(d time.Duration) string { return d.Round(time.Millisecond).String() }
