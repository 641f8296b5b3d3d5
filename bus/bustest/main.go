package bustest

import (
	"testing"

	"go.uber.org/goleak"
)

const natsServer = "github.com/nats-io/nats-server/v2/server"

// Main runs the tests of a package that starts nats-servers in its own process, and fails when they leave a goroutine.
// Two that nats-server (2.15) leaves are let pass: a request to make a stream that waits in its queue while it shuts
// down is still carried out, and nobody stops the loops of the new store.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction(natsServer+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(natsServer+"/ats.Register.func1"))
}
