package difftest

import (
	"testing"

	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// rewindBinary is the broker under test.
var rewindBinary rewindbin.Binary

func TestMain(m *testing.M) { rewindBinary.Main(m) }
