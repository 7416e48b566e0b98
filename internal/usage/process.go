package usage

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// ticksPerSecond is USER_HZ, which is 100 on every architecture that Go runs on.
const ticksPerSecond = 100

// Process is the CPU time, user and system, that another process has used since it started, in seconds, by the kernel's clock ticks of 10 ms.
func Process(pid int) (cpuSeconds float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading what process %d has used: %w", pid, err)
	}
	// The second field is the program's name in parentheses, which may hold anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const user, system = 11, 12 // counted behind the name
	if len(fields) <= system {
		return 0, fmt.Errorf("reading what process %d has used: %q", pid, b)
	}
	for _, f := range fields[user : system+1] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading what process %d has used: %w", pid, err)
		}
		cpuSeconds += float64(n) / ticksPerSecond
	}
	return cpuSeconds, nil
}
