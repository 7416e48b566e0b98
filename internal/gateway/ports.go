package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ports maps broker ids to ports: any ids to as many ports as there are brokers. A broker keeps its port for good, also while it is away. What was configured goes
// first, then what the file says; a broker that is in neither gets the lowest port above the bootstrap's that nobody has.
//
// The file is a log, so that several gateways may share it without a lock: to take a port is to append "id port" in one write. Everybody reads it the same way: the
// first line of an id counts, unless its port was taken by a line before. Whoever has appended reads the file again to learn whether it was the first.
type ports struct {
	first int // the bootstrap's; 0: every listener takes any free port
	file  string
	fixed map[int32]int

	mu      sync.Mutex
	byID    map[int32]int
	skipped []int // taken by somebody else on this machine
}

// errNoPort: there are more brokers than ports.
var errNoPort = errors.New("no port is left for the broker")

// maxPortFile bounds what is read of the file: a line a broker.
const maxPortFile = 1 << 20

func newPorts(first int, file string, fixed map[int32]int) (*ports, error) {
	for id, port := range fixed {
		if port == first {
			return nil, fmt.Errorf("broker %d has port %d, where clients bootstrap", id, port)
		}
	}
	p := &ports{first: first, file: file, fixed: maps.Clone(fixed)}
	if file == "" {
		p.byID = p.fromLines(nil)
		return p, nil
	}
	if first == 0 {
		return nil, fmt.Errorf("port file %s: it needs a fixed port to listen on", file)
	}
	var err error
	p.byID, err = p.load()
	return p, err
}

// load reads the file; one that is not there is empty.
func (p *ports) load() (map[int32]int, error) {
	text, err := os.ReadFile(p.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the port map: %w", err)
	}
	if len(text) > maxPortFile {
		return nil, fmt.Errorf("port map %s has %d bytes, it cannot be one", p.file, len(text))
	}
	// A last line without its end is another gateway's write that is under way, or one that was cut off.
	return p.fromLines(text[:bytes.LastIndexByte(text, '\n')+1]), nil
}

// fromLines is the one way to read the file.
func (p *ports) fromLines(text []byte) map[int32]int {
	byID, taken := maps.Clone(p.fixed), map[int]bool{p.first: true}
	if byID == nil {
		byID = make(map[int32]int)
	}
	for _, port := range byID {
		taken[port] = true
	}
	for line := range strings.Lines(string(text)) {
		id, port, ok := parsePortLine(line)
		if _, known := byID[id]; ok && !known && !taken[port] {
			byID[id], taken[port] = port, true
		}
	}
	return byID
}

func parsePortLine(line string) (id int32, port int, ok bool) {
	f := strings.Fields(line)
	if len(f) != 2 {
		return 0, 0, false
	}
	n, err := strconv.ParseInt(f[0], 10, 32)
	port, err2 := strconv.Atoi(f[1])
	return int32(n), port, err == nil && err2 == nil && n >= 0 && port > 0 && port <= math.MaxUint16
}

// known gives all that were given out so far.
func (p *ports) known() map[int32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.byID)
}

// assign gives the broker's port, and takes one if it has none. It is called for one broker at a time; the lock is only for readers of byID.
func (p *ports) assign(id int32) (int, error) {
	if port, ok := p.known()[id]; ok {
		return port, nil
	}
	if p.first == 0 {
		p.keep(map[int32]int{id: 0})
		return 0, nil
	}
	if p.file == "" {
		port, err := p.free(p.known())
		if err == nil {
			p.keep(map[int32]int{id: port})
		}
		return port, err
	}
	// Others may take the port between our reading and our writing; each round somebody wins.
	for range 100 {
		byID, err := p.load()
		if err != nil {
			return 0, err
		}
		p.keep(byID)
		if port, ok := byID[id]; ok {
			return port, nil
		}
		port, err := p.free(byID)
		if err != nil {
			return 0, err
		}
		if err := appendLine(p.file, fmt.Sprintf("%d %d\n", id, port)); err != nil {
			return 0, fmt.Errorf("writing the port map: %w", err)
		}
	}
	return 0, fmt.Errorf("port map %s: what is appended does not stay", p.file)
}

// skip takes a port back that cannot be had, and tells whether there may be another: not where others go by the same map.
func (p *ports) skip(id int32, port int) bool {
	if _, fixed := p.fixed[id]; fixed || p.file != "" || p.first == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipped = append(p.skipped, port)
	delete(p.byID, id)
	return true
}

// refresh learns what other gateways have put into the file.
func (p *ports) refresh() error {
	if p.file == "" {
		return nil
	}
	byID, err := p.load()
	if err == nil {
		p.keep(byID)
	}
	return err
}

func (p *ports) keep(m map[int32]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.byID, m)
}

func (p *ports) free(byID map[int32]int) (int, error) {
	p.mu.Lock()
	taken := append(slices.Collect(maps.Values(byID)), p.skipped...)
	p.mu.Unlock()
	for port := p.first + 1; port <= math.MaxUint16; port++ {
		if !slices.Contains(taken, port) {
			return port, nil
		}
	}
	return 0, errNoPort
}

// appendLine writes in one write to the end, durably: clients have been told the port from then on.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	// A line that was cut off must not swallow ours.
	if end, err := f.Seek(0, 2); err == nil && end > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, end-1); err == nil && last[0] != '\n' {
			line = "\n" + line
		}
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Sync(), f.Close())
}

func sortedIDs[V any](m map[int32]V) []int32 { return slices.Sorted(maps.Keys(m)) }
