package streamstest

import (
	"os"
	"testing"

	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// rewindBinary is the broker under test.
var rewindBinary rewindbin.Binary

func TestMain(m *testing.M) { rewindBinary.Main(m) }

// full tells whether the long version was asked for.
func full() bool { return os.Getenv("REWIND_STREAMS_FULL") != "" }
