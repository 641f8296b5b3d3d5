package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says how to reach the bus, and how the streams are made when they are missing.
type Config struct {
	// Name of this client, shown by the server and by Claim; for example "watcher/ca/host-1". Required.
	Name string

	// URLs of the servers. Exactly one of URLs and Server is set.
	URLs []string
	// Server in this process, as StartEmbedded gave it.
	Server *Embedded

	// CredsFile, NkeyFile (a seed), or User with Password or PasswordFile say who the client is; at most one of the three.
	CredsFile, NkeyFile, User, Password, PasswordFile string
	// CAFile checks the server, CertFile and KeyFile show who the client is. PEM files, all optional. These and the files
	// above are read again for each connection, so what was rotated is used from the next one on.
	CAFile, CertFile, KeyFile string
	// InboxPrefix of replies, for permissions by cluster; default "_INBOX".
	InboxPrefix string

	// Replicas of streams that this client makes; default 3 when the server is clustered, else 1. The count of an
	// existing stream is never changed.
	Replicas int
	// EventsBytes, StateBytes and HistoryBytes limit the streams; default 2 GiB, 2 GiB, 1 GiB.
	EventsBytes, StateBytes, HistoryBytes int64

	// Proxies says that this client makes the list of proxies when it is missing: xDS replicas and operators do.
	Proxies bool

	// RetryMin and RetryMax space the sessions of a reader after failures; default 1 s and 60 s.
	RetryMin, RetryMax time.Duration
	// RefreshEvery is how often, give or take a half, a reader opens a new session without need, against whatever no
	// check finds; default 1 h.
	RefreshEvery time.Duration
	// CheckEvery is how often a quiet session asks whether its stream is still the same one; default 3 s.
	CheckEvery time.Duration
	// Heartbeat is how often the server shows a quiet session that it is alive; two missing end it; default 2 s.
	Heartbeat time.Duration
	// ClaimTTL is how long a claim outlives its process; default 15 s.
	ClaimTTL time.Duration

	// Log and Metrics are required.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// withDefaults fills what is zero and says what is wrong.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Name == "":
		return c, errors.New("bus: no client name")
	case (len(c.URLs) == 0) == (c.Server == nil):
		return c, errors.New("bus: give either URLs of servers or an embedded server")
	case c.Log == nil || c.Metrics == nil:
		return c, errors.New("bus: no logger or no metrics registerer")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return c, errors.New("bus: a certificate and its key belong together")
	case c.Replicas < 0 || c.Replicas > 5:
		return c, fmt.Errorf("bus: %d replicas of streams are not 1 to 5", c.Replicas)
	}
	who := 0
	for _, set := range [...]bool{c.CredsFile != "", c.NkeyFile != "", c.User != "" || c.Password != "" || c.PasswordFile != ""} {
		if set {
			who++
		}
	}
	if who > 1 || c.Password != "" && c.PasswordFile != "" {
		return c, errors.New("bus: give only one of credentials file, nkey file, and user with one password")
	}
	orDefault(&c.EventsBytes, 2<<30)
	orDefault(&c.StateBytes, 2<<30)
	orDefault(&c.HistoryBytes, 1<<30)
	orDefault(&c.RetryMin, time.Second)
	orDefault(&c.RetryMax, time.Minute)
	orDefault(&c.RefreshEvery, time.Hour)
	orDefault(&c.CheckEvery, 3*time.Second)
	orDefault(&c.Heartbeat, 2*time.Second)
	orDefault(&c.ClaimTTL, 15*time.Second)
	if c.RetryMin < 0 || c.RetryMax < c.RetryMin || c.RefreshEvery < 0 || c.CheckEvery < 0 || c.Heartbeat < 0 || c.ClaimTTL < time.Second {
		return c, errors.New("bus: a duration is negative, RetryMax is below RetryMin, or ClaimTTL is below 1 s")
	}
	return c, nil
}

func orDefault[T int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
