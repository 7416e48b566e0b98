package backfill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Modes of a Job.
const (
	ModeConsumer = "consumer" // kgo
	ModeRaw      = "raw"      // Fetch frames, records dropped undecoded
	ModeProducer = "producer" // writes Job.Write bytes to partition 0, by kgo
	ModeRanges   = "ranges"   // plain ranged GETs of the segments' locations, bytes dropped: the yardstick
)

// Job is one read in a process of its own, so that its CPU and memory are its own. It travels as JSON to the child's command line.
type Job struct {
	Mode              string
	Broker, Topic     string
	Until             map[int32]int64
	Direct            bool  // connect through the dialer and follow locations
	RemoteMax         int32 // remote.max.partition.fetch.bytes, through the dialer; 0 leaves it out
	PartitionMaxBytes int32
	MemoryBudget      int64 // of the dialer, or of ModeRanges
	Parallelism       int   // GETs in flight
	ChunkBytes        int   // size of one GET
	Digest            bool
	AllowedHosts      []string // stores that the dialer may open beyond those that it opens by itself
	Bare              *Bare    // resolve from the cluster's own metadata topic; nil: follow the broker's locations
	Pace              int64    // bytes a second at most; 0 is as fast as it goes
	Via               string   // host:port to connect to in every broker's place; a bare proxy is there
	Write             int64    // ModeProducer: bytes to write
	RecordBytes       int      // ModeProducer
	AcksAll           bool     // ModeProducer; else acks=1
	CAFile            string   // the broker speaks TLS, with a certificate that is signed with this one
}

// Bare is what the dialer needs on a cluster that knows nothing of locations: the folder of its remote segments, and the distance to put before it.
type Bare struct {
	Dir        string
	Latency    time.Duration
	StreamRate int64
	// KeyID and KeyFile, if set, say that Aiven's plug-in wrote the segments, encrypted.
	KeyID, KeyFile string
}

// jobLine is a line of a child's output: progress, and at last the result or the error.
type jobLine struct {
	Progress int64   `json:"progress,omitempty"`
	Result   *Result `json:"result,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// JobCommand is the name of the hidden command that RunJob starts.
const JobCommand = "backfill-job"

// RunJob runs the job in a child process of this same binary.
func RunJob(ctx context.Context, job Job, progress func(bytes int64), logs io.Writer) (Result, error) {
	self, err := os.Executable()
	if err != nil {
		return Result{}, fmt.Errorf("finding this program: %w", err)
	}
	in, err := json.Marshal(job)
	if err != nil {
		return Result{}, err
	}
	cmd := exec.CommandContext(ctx, self, JobCommand, string(in))
	cmd.Stderr = logs
	if _, err := cmd.StdinPipe(); err != nil { // open as long as this process lives
		return Result{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Result{}, err
	}
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("starting the reader: %w", err)
	}
	res, readErr := readJobLines(out, progress)
	if err := cmd.Wait(); err != nil && readErr == nil {
		readErr = fmt.Errorf("the reader ended badly: %w", err)
	}
	if ctx.Err() != nil {
		readErr = ctx.Err()
	}
	return res, readErr
}

func readJobLines(out io.Reader, progress func(int64)) (Result, error) {
	for s := bufio.NewScanner(out); s.Scan(); {
		var l jobLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return Result{}, fmt.Errorf("a line of the reader: %w", err)
		}
		switch {
		case l.Error != "":
			return Result{}, errors.New(l.Error)
		case l.Result != nil:
			return *l.Result, nil
		case progress != nil:
			progress(l.Progress)
		}
	}
	return Result{}, errors.New("the reader ended without a result")
}

// ServeJob is the child's side: it does the job that arg describes and writes lines to out. An error is written there too, not returned. It gives up when in
// ends: a parent that was killed must not leave a reader behind that waits for servers which have gone as well.
func ServeJob(ctx context.Context, arg string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the process at the latest: a read of standard input cannot be interrupted
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	enc := json.NewEncoder(out)
	var job Job
	if err := json.Unmarshal([]byte(arg), &job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	var last time.Time
	res, err := job.run(ctx, func(n int64) {
		if time.Since(last) < 100*time.Millisecond {
			return
		}
		last = time.Now()
		if err := enc.Encode(jobLine{Progress: n}); err != nil {
			cancel() // the parent has gone: nobody wants the result
		}
	})
	if err != nil {
		return enc.Encode(jobLine{Error: err.Error()})
	}
	return enc.Encode(jobLine{Result: &res})
}
