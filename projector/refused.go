// Pure: values in, values out.

package projector

import (
	"github.com/slicecast/slicecast/internal/endpoint"
	"github.com/slicecast/slicecast/internal/endpoint/ledger"
)

// place names a slice.
type place struct {
	key   endpoint.Key
	slice string
}

// refusedEvent takes in that nobody can read what the bus holds of a slice. To a sum it adds what its headers say, as it
// does in the views of those who read headers alone. What memory has of the slice stays until there is something to read;
// where it has nothing, the floor stays below what cannot be read, or it would be taken for stale when it can.
func (m *machine) refusedEvent(n ledger.Notice) {
	if n.Of != ledger.Changed {
		return
	}
	m.changed(n)
	if s, known := m.services[n.Key]; (!known || !s.refuse(n.Slice)) && !n.Gone {
		m.owed[place{n.Key, n.Slice}] = n.Version
	}
}

// certain gives the highest version up to c that memory can be complete as of, if there is one.
func (m *machine) certain(c endpoint.Version) (at endpoint.Version, some bool) {
	for _, v := range m.owed {
		if v.IsZero() {
			return v, false
		}
		if !v.After(c) {
			c = endpoint.Version{Generation: v.Generation, Resource: v.Resource - 1}
		}
	}
	return c, true
}

// refusedState takes in that nobody can read what STATE holds of a Key: it is to be written again.
func (m *machine) refusedState(n ledger.Notice) {
	if n.Of != ledger.Changed {
		return
	}
	m.states.ledger.Put(n.Key.String(), n.Seq, 0, ledger.Sum{})
	if s := m.service(n.Key); n.Seq > s.seq {
		s.spoil(n.Seq)
		m.enqueue(s)
	}
}
