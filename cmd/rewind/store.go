package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/azure"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/bucket/gcs"
	"github.com/rewind-kafka/rewind/bucket/s3"
	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/fileserver"
)

// openOwnStore opens the store that a broker tiers to. signer and idFile are for a directory; signer nil leaves it unsigned.
func openOwnStore(ctx context.Context, rawURL, idFile string, signer *fileserver.Signer) (*bucket.Store, error) {
	return openAny(ctx, rawURL, file.Options{IDFile: idFile}, signer)
}

// openStore opens a store that is only read, and that others write to.
func openStore(ctx context.Context, rawURL string, signer *fileserver.Signer) (*bucket.Store, error) {
	return openAny(ctx, rawURL, file.Options{ReadOnly: true}, signer)
}

// openAny opens a store of any kind: this command is the only place that links all drivers. o is for a directory.
func openAny(ctx context.Context, rawURL string, o file.Options, signer *fileserver.Signer) (*bucket.Store, error) {
	if signer != nil {
		o.Sign = signer.Sign
	}
	return bucket.Open(ctx, rawURL, file.Driver(o), s3.Driver(), gcs.Driver(), azure.Driver())
}

// pingTime is how long a store may take to answer at the start.
const pingTime = 15 * time.Second

// pinger is a *bucket.Manager.
type pinger interface{ Ping(context.Context) error }

// checkStore asks the store in the background whether it is there, once. A store that is not does not keep the broker from starting, since it may come back, but
// without a word an operator would learn of a mistake in its URL only when the first segment is due. url holds no parameters, and so no secrets. stop gives up and waits.
func checkStore(store pinger, url string, limit time.Duration, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		limited, end := context.WithTimeout(ctx, limit)
		defer end()
		if err := store.Ping(limited); err != nil && ctx.Err() == nil {
			log.Warn("the store does not answer as it should: copying to it and reading history from it will fail or wait until it does", "store", url, "err", err,
				"check", "the URL's bucket, region and endpoint, credentials and their right to list the bucket, the network")
		}
	}()
	return func() { cancel(); <-done }
}

// storeCmd is the HTTP front of a directory store in a process of its own.
type storeCmd struct {
	distanceFlags `embed:"" set:"latency=0s" set:"rate=0"`
	logFlags      `embed:""`

	Root    string `required:"" help:"The directory that --store file://... of the broker names." type:"path"`
	KeyFile string `required:"" help:"The key that locations are signed with: location.key in the broker's data directory. If store.id lies beside it, only the directory with that id is served." type:"path"`
	Listen  string `help:"host:port of the HTTP listener; the broker's http.advertised.listener." default:"127.0.0.1:9093"`
	Control bool   `hidden:"" help:"Answer on standard output, and stop when standard input ends."`
}

func (c *storeCmd) Run(ctx context.Context) error {
	log := c.logger()
	_, missing := os.Stat(c.KeyFile)
	key, err := fileserver.LoadKey(c.KeyFile)
	if err != nil {
		return err
	}
	if errors.Is(missing, fs.ErrNotExist) { // right before the broker's first start only
		log.Warn("there was no key file, a new one was made: every URL that a broker signs with another key is refused", "key-file", c.KeyFile,
			"check", "--key-file is location.key in the broker's data directory")
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listening for HTTP: %w", err)
	}
	signer, err := fileserver.NewSigner(key, &url.URL{Scheme: "http", Host: l.Addr().String()}, nil)
	if err != nil {
		return err
	}
	files, err := fileserver.NewHandler(c.Root, filepath.Join(filepath.Dir(c.KeyFile), idFile), signer)
	if err != nil {
		return err
	}
	defer files.Close()
	if err := files.Check(); err != nil {
		log.Warn("the store is away: clients are told so until it is there", "err", err)
	}
	far := distance.Distance{Latency: c.StoreLatency, BytesPerSecond: int64(c.StoreStreamRate)}
	var gets atomic.Int64
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gets.Add(1); far.Handler(files).ServeHTTP(w, r) })
	server := startHTTP(l, counted)
	log.Info("serving signed locations", "http", l.Addr().String(), "root", c.Root, "distance", far.String())
	if c.Control {
		err = control.Serve(ctx, os.Stdin, os.Stdout, control.Ready{HTTP: l.Addr().String()}, func() (int64, int64) { return 0, gets.Load() })
	} else {
		<-ctx.Done()
	}
	return errors.Join(err, server.stop(0))
}

// httpServer is an HTTP server and the goroutine that it runs on.
type httpServer struct {
	s    *http.Server
	done chan error
}

func startHTTP(l net.Listener, h http.Handler) *httpServer {
	s := &httpServer{s: fileserver.NewServer(h), done: make(chan error, 1)}
	go func() { s.done <- s.s.Serve(l) }()
	return s
}

const drainTime = 5 * time.Second

// stop lets answers that are under way finish for drainTime, or for so long, if that is more; then it cuts them.
func (s *httpServer) stop(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), max(patience, drainTime))
	defer cancel()
	err := s.s.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.s.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
