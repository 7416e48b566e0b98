package gatewaytest

import (
	"os"
	"testing"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// lab is what the tests of this process share.
var lab struct {
	binary rewindbin.Binary
	jvm    clientdrivers.SharedJVM
}

// full asks for everything that the make targets test-gateway-clients and test-cluster run; without it the tests take samples.
var full = os.Getenv("REWIND_GATEWAY_FULL") != ""

func TestMain(m *testing.M) { lab.binary.Main(m, lab.jvm.Close) }
