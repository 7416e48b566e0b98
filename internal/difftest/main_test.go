package difftest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// brokerBinary is the broker under test, built once. The tests only read it.
var brokerBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rewind-difftest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	brokerBinary = filepath.Join(dir, "rewind")
	code := 1
	if out, err := exec.Command("go", "build", "-o", brokerBinary, "github.com/rewind-kafka/rewind/cmd/rewind").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the broker: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
