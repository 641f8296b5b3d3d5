package bus

import (
	"fmt"
	"log/slog"
)

// serverLog hands the lines of the embedded server to the log of the process. Its notices are Debug here: they tell of
// the server's own steps at start, which nobody has to act on.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug("bus server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Debugf(format string, v ...any) {
	l.log.Debug("bus server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Tracef(format string, v ...any) {
	l.log.Debug("bus server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Warnf(format string, v ...any) {
	l.log.Warn("bus server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Errorf(format string, v ...any) {
	l.log.Error("bus server", "text", fmt.Sprintf(format, v...))
}
func (l serverLog) Fatalf(format string, v ...any) {
	l.log.Error("bus server", "text", fmt.Sprintf(format, v...))
}
