package gateway

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func mustPorts(t *testing.T, first int, file string, fixed map[int32]int) *ports {
	t.Helper()
	p, err := newPorts(first, file, fixed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCase32_IDsNotRanges(t *testing.T) {
	p := mustPorts(t, 9092, "", nil)
	for i, id := range []int32{1, 7, 400} {
		if port, err := p.assign(id); err != nil || port != 9093+i {
			t.Errorf("broker %d has port %d (%v), want %d", id, port, err, 9093+i)
		}
	}
	if port, err := p.assign(7); err != nil || port != 9094 {
		t.Errorf("asked again, broker 7 has port %d (%v)", port, err)
	}
}

func TestPortsConfigured(t *testing.T) {
	p := mustPorts(t, 9092, "", map[int32]int{7: 9093, 1: 12000})
	for _, c := range []struct {
		id   int32
		port int
	}{{400, 9094}, {7, 9093}, {1, 12000}, {2, 9095}} {
		if port, err := p.assign(c.id); err != nil || port != c.port {
			t.Errorf("broker %d has port %d (%v), want %d", c.id, port, err, c.port)
		}
	}
	if _, err := newPorts(9092, "", map[int32]int{7: 9092}); err == nil {
		t.Error("a broker may have the bootstrap's port")
	}
}

// Gateways that share a file agree whatever the order in which they hear of brokers, and so do those that come later.
func TestPortFileShared(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports")
	maps3 := make([]map[int32]int, 3)
	var wg sync.WaitGroup
	for i := range maps3 {
		p := mustPorts(t, 9092, file, nil)
		wg.Go(func() {
			for k := range 40 {
				id := int32((k*7 + i*13) % 40)
				if _, err := p.assign(id); err != nil {
					t.Error(err)
				}
			}
			maps3[i] = p.known()
		})
	}
	wg.Wait()
	later := mustPorts(t, 9092, file, nil).known()
	taken := map[int]int32{}
	for id, port := range later {
		if other, twice := taken[port]; twice {
			t.Errorf("brokers %d and %d share port %d", id, other, port)
		}
		taken[port] = id
	}
	if len(later) != 40 {
		t.Errorf("%d brokers in the file", len(later))
	}
	for i, m := range maps3 {
		if !maps.Equal(m, later) {
			t.Errorf("gateway %d has %v, the file says %v", i, m, later)
		}
	}
}

func TestPortFileReading(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports")
	text := "# a comment\n7 9095\n8 9095\n7 9096\nnonsense\n9 0\n-1 9097\n10 70000\n8 9099\n11 92"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := mustPorts(t, 9092, file, nil)
	if want := map[int32]int{7: 9095, 8: 9099}; !maps.Equal(p.known(), want) {
		t.Errorf("read %v, want %v", p.known(), want)
	}
	// The line without an end is nobody's, and does not swallow the next.
	if port, err := p.assign(12); err != nil || port != 9093 {
		t.Errorf("port %d, %v", port, err)
	}
	if again := mustPorts(t, 9092, file, nil).known(); !maps.Equal(again, p.known()) {
		t.Errorf("read again %v, want %v", again, p.known())
	}
}

func TestPortsRunOut(t *testing.T) {
	p := mustPorts(t, 65534, "", nil)
	if port, err := p.assign(1); err != nil || port != 65535 {
		t.Errorf("port %d, %v", port, err)
	}
	if _, err := p.assign(2); err != errNoPort {
		t.Errorf("%v, want %v", err, errNoPort)
	}
}

func ExampleBroker() {
	fmt.Println(Broker{ID: 7, Host: "::1", Port: 9092}.addr())
	// Output: [::1]:9092
}
