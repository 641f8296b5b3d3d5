package cases

import (
	"testing"

	"github.com/slicecast/slicecast/bus/bustest"
)

func TestMain(m *testing.M) { bustest.Main(m) }
