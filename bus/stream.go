package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names of the streams and buckets.
const (
	eventsStream   = "SLICECAST_EVENTS"
	stateStream    = "SLICECAST_STATE"
	historyStream  = "SLICECAST_HISTORY"
	replicasBucket = "SLICECAST_REPLICAS"
	replicasStream = "KV_" + replicasBucket
	replicasRoot   = "$KV." + replicasBucket + "."
	proxiesBucket  = "SLICECAST_PROXIES"
	proxiesStream  = "KV_" + proxiesBucket
	proxiesRoot    = "$KV." + proxiesBucket + "."
)

const (
	tombstoneTTL = 24 * time.Hour
	historyAge   = 24 * time.Hour
	maxConsumers = 2000        // explicit: a server's default may be lower
	maxMessage   = 1 << 20     // bytes of one message
	remakeAfter  = time.Second // that a stream which was there is missing before it is made again
	markerTTL    = time.Minute // of the message that says that an entry of the bucket has lapsed or was deleted
)

func (b *Bus) specs() []jetstream.StreamConfig {
	specs := []jetstream.StreamConfig{b.eventsSpec(), b.stateSpec(), b.historySpec(), b.replicasSpec()}
	if b.cfg.Proxies {
		specs = append(specs, b.proxiesSpec())
	}
	return specs
}

func (b *Bus) eventsSpec() jetstream.StreamConfig {
	spec := b.lastPerSubject(eventsStream, eventsRoot, b.cfg.EventsBytes, "Slices of clusters: last event of each, checkpoints, cluster records")
	// A direct read can be permitted by subject, so by cluster; one from the leader cannot, it names its subject in the
	// body. A server that is behind may answer it; a decision on that loses its compare-and-set, and is made again. Who
	// may read the whole stream asks the leader.
	spec.AllowDirect = true
	return spec
}

func (b *Bus) stateSpec() jetstream.StreamConfig {
	return b.lastPerSubject(stateStream, stateRoot, b.cfg.StateBytes, "Services of clusters: last state of each, checkpoints")
}

// lastPerSubject keeps the last message of each subject for ever (a tombstone brings its own time to live). A full
// stream refuses what is new; discarding the oldest would silently take a service away. No direct get, so that reads come
// from the leader.
func (b *Bus) lastPerSubject(name, root string, size int64, about string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: about, Subjects: []string{root + ">"},
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, MaxBytes: size, MaxMsgSize: maxMessage,
		Storage: jetstream.FileStorage, Compression: jetstream.S2Compression, Replicas: b.replicas(),
		AllowMsgTTL: true, DenyDelete: true, MaxConsumers: maxConsumers, Duplicates: time.Minute,
	}
}

func (b *Bus) historySpec() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: historyStream, Description: "Copies of events, for replay and timelines", Subjects: []string{historyRoot + ">"},
		MaxAge: historyAge, Discard: jetstream.DiscardOld, MaxBytes: b.cfg.HistoryBytes, MaxMsgSize: maxMessage,
		Storage: jetstream.FileStorage, Compression: jetstream.S2Compression, Replicas: b.replicas(),
		AllowDirect: true, DenyDelete: true, MaxConsumers: maxConsumers, Duplicates: time.Minute,
	}
}

// replicasSpec is a key-value bucket as the NATS tools know it. An entry that lapses leaves a marker, so that readers hear
// of it.
func (b *Bus) replicasSpec() jetstream.StreamConfig {
	return b.entries(replicasStream, replicasRoot, "Processes that are alive")
}

// proxiesSpec is a bucket likewise.
func (b *Bus) proxiesSpec() jetstream.StreamConfig {
	return b.entries(proxiesStream, proxiesRoot, "Streams of proxies, open ones and those that ended lately")
}

func (b *Bus) entries(name, root, about string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: about, Subjects: []string{root + ">"},
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, MaxBytes: 64 << 20, MaxMsgSize: maxMessage,
		Storage: jetstream.FileStorage, Replicas: b.replicas(), MaxConsumers: maxConsumers, Duplicates: time.Minute,
		AllowRollup: true, DenyDelete: true, AllowDirect: true, AllowMsgTTL: true, SubjectDeleteMarkerTTL: markerTTL,
	}
}

func (b *Bus) replicas() int {
	switch {
	case b.cfg.Replicas > 0:
		return b.cfg.Replicas
	case b.nc.ConnectedClusterName() != "":
		return 3
	default:
		return 1
	}
}

// ensure gives the stream and what the server says of it now, and makes it when it is missing. An existing stream is
// never changed: its operator may have tuned it, and two releases must not fight over it. One that was there may still be
// on its way out: a server that is alone would delete the files of a new one of that name with those of the old one, and
// the new one would take messages and acknowledge none until the server is started anew.
func (b *Bus) ensure(caller context.Context, want jetstream.StreamConfig) (jetstream.Stream, *jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(caller, callTimeout)
	defer cancel()
	ctx, done := b.link.guard(ctx, "$JS.API.STREAM.INFO."+want.Name)
	defer done()
	st, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && b.seen(want.Name) && sleep(ctx, remakeAfter) {
		st, err = b.js.Stream(ctx, want.Name)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st, err = b.create(ctx, want)
	}
	err = b.undecided(caller, named(err, context.Cause(ctx)))
	b.answered(question, err)
	if err != nil {
		return nil, nil, fmt.Errorf("open stream %s: %w", want.Name, err)
	}
	info := st.CachedInfo()
	if err := fits(info.Config, want); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	b.streams[want.Name] = st
	b.mu.Unlock()
	return st, info, nil
}

// seen reports whether the stream was there once.
func (b *Bus) seen(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streams[name] != nil
}

func (b *Bus) create(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	ctx, done := b.link.guard(ctx, "$JS.API.STREAM.CREATE."+want.Name)
	defer done()
	st, err := b.js.CreateStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return b.js.Stream(ctx, want.Name) // Another client was faster, with other settings.
	}
	if err != nil {
		return nil, named(err, context.Cause(ctx))
	}
	b.log.Info("stream made", "stream", want.Name, "replicas", want.Replicas)
	return st, nil
}

// stream gives the handle of a stream, from memory once it was seen.
func (b *Bus) stream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	b.mu.Lock()
	st := b.streams[want.Name]
	b.mu.Unlock()
	if st != nil {
		return st, nil
	}
	st, _, err := b.ensure(ctx, want)
	return st, err
}

// fits names the first setting of an existing stream that breaks a promise. Sizes, replicas and limits of consumers are
// the operator's.
func fits(is, want jetstream.StreamConfig) error {
	covered := false
	for _, s := range is.Subjects {
		covered = covered || s == want.Subjects[0]
	}
	for _, c := range [...]struct {
		ok   bool
		what string
	}{
		{covered, fmt.Sprintf("subjects %v lack %s", is.Subjects, want.Subjects[0])},
		{is.Retention == want.Retention, fmt.Sprintf("retention is %s, not %s", is.Retention, want.Retention)},
		{is.MaxMsgsPerSubject == want.MaxMsgsPerSubject || want.Name == historyStream, fmt.Sprintf("max_msgs_per_subject is %d, not %d", is.MaxMsgsPerSubject, want.MaxMsgsPerSubject)},
		{is.Discard == want.Discard, fmt.Sprintf("discard is %s, not %s", is.Discard, want.Discard)},
		{is.MaxAge == 0 || want.MaxAge > 0, "max_age would lose services"},
		{is.AllowMsgTTL || !want.AllowMsgTTL, "allow_msg_ttl is off"},
		{!is.AllowDirect || want.AllowDirect, "allow_direct is on: reads could be stale"},
		{is.SubjectDeleteMarkerTTL > 0 || want.SubjectDeleteMarkerTTL == 0, "subject_delete_marker_ttl is off"},
		{!is.Sealed && is.Mirror == nil, "it is sealed or a mirror"},
	} {
		if !c.ok {
			return fmt.Errorf("%w: %s: %s", ErrStreamSettings, want.Name, c.what)
		}
	}
	return nil
}
