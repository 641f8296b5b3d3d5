// Pure: how long a reader waits before its next session.

package bus

import "time"

// spacing spaces the sessions of one reader after failures. Its limits are least and most.
type spacing struct {
	least, most time.Duration
	failures    int
}

// next is the pause after a session that ended for reason, had ended its snapshot or not, and lasted so long. jitter is
// in [0, 1). A good session that is lost is followed by the next one at once. A resync is always spaced: the content
// was doubtful, not the connection, and every reader of the stream may think so at the same moment.
func (s *spacing) next(reason string, complete bool, lasted time.Duration, jitter float64) time.Duration {
	if reason == whyLost || reason == whyRefresh {
		s.failures = 0
		return 0
	}
	if complete && lasted >= s.least {
		if reason != whyResync {
			s.failures = 0
			return 0
		}
		if lasted >= s.most {
			s.failures = 0
		}
	}
	pause := s.most
	if s.failures < 16 {
		pause = min(pause, s.least<<s.failures)
	}
	s.failures++
	return min(pause+time.Duration(jitter*float64(pause)/2), s.most)
}
