package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
)

// producerIDBlock is how many ids one write to disk reserves, as in Kafka. A restart skips the rest of the block.
const producerIDBlock = 1000

// producerIDs hands out producer ids, none twice: the end of the block in use is on stable storage before the first id of it is given.
type producerIDs struct {
	fs   vfs.FS
	path string

	reserving sync.Mutex // held over the write; mu is not

	mu       sync.Mutex
	nextID   int64
	blockEnd int64
}

// openProducerIDs reads the file `producer-id-block`: one line, the first id that was not reserved yet.
func openProducerIDs(fs vfs.FS, dir string) (*producerIDs, error) {
	p := &producerIDs{fs: fs, path: fs.PathJoin(dir, "producer-id-block")}
	f, err := fs.Open(p.path)
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening producer ids: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return nil, fmt.Errorf("reading producer ids: %w", err)
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("reading producer ids: %s holds %q, not a number", p.path, text)
	}
	p.nextID, p.blockEnd = n, n
	return p, nil
}

// skipTo keeps ids below id from being given, for good.
func (p *producerIDs) skipTo(id int64) error {
	p.mu.Lock()
	if id <= p.nextID {
		p.mu.Unlock()
		return nil
	}
	p.nextID, p.blockEnd = id, id
	p.mu.Unlock()
	return p.reserve()
}

func (p *producerIDs) next() (int64, error) {
	for {
		p.mu.Lock()
		if p.nextID < p.blockEnd {
			p.nextID++
			id := p.nextID - 1
			p.mu.Unlock()
			return id, nil
		}
		p.mu.Unlock()
		if err := p.reserve(); err != nil {
			return 0, err
		}
	}
}

// reserve writes the end of the next block. Others who need one wait for it and then find it.
func (p *producerIDs) reserve() error {
	p.reserving.Lock()
	defer p.reserving.Unlock()
	p.mu.Lock()
	from, end := p.nextID, p.blockEnd
	p.mu.Unlock()
	if from < end {
		return nil
	}
	end = max(from, end) + producerIDBlock
	if err := atomicfile.Replace(p.fs, p.path, []byte(strconv.FormatInt(end, 10)+"\n")); err != nil {
		return fmt.Errorf("reserving producer ids: %w", err)
	}
	p.mu.Lock()
	p.blockEnd = max(p.blockEnd, end)
	p.mu.Unlock()
	return nil
}
