package usage

import (
	"os"
	"testing"
	"time"
)

// TestProcess: the kernel's two ways to tell what this process has used agree, as far as ticks go.
func TestProcess(t *testing.T) {
	const ticks = 0.04
	var before Self
	var err error
	for end := time.Now().Add(time.Minute); before.CPUSeconds < 2*ticks && time.Now().Before(end); { // something to count, however busy the machine is
		if before, err = Read(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Process(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	after, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if got < before.CPUSeconds-ticks || got > after.CPUSeconds+ticks || got == 0 {
		t.Errorf("%v s, want %v to %v", got, before.CPUSeconds, after.CPUSeconds)
	}
	if _, err := Process(-1); err == nil {
		t.Error("a process that there cannot be has used something")
	}
}
