package clienttest

import (
	"testing"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// lab is what the tests of this process share.
var lab struct {
	binary rewindbin.Binary
	jvm    clientdrivers.SharedJVM
}

func TestMain(m *testing.M) { lab.binary.Main(m, lab.jvm.Close) }
