package killtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// brokerBinary is the broker under test, built once for the run. The tests only read it.
var brokerBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rewind-kill-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	brokerBinary = filepath.Join(dir, "rewind")
	args := []string{"build", "-o", brokerBinary}
	if os.Getenv("REWIND_KILL_RACE") != "" { // the broker itself under the race detector
		args = append(args, "-race")
	}
	code := 1
	if out, err := exec.Command("go", append(args, "../../cmd/rewind")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the broker: %v\n%s", err, out)
	} else if code = m.Run(); code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
