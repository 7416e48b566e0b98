package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/fileserver"
	"github.com/rewind-kafka/rewind/internal/gateway"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// gatewayHistory is what a gateway reads history with. It is closed after the gateway.
type gatewayHistory struct {
	options *gateway.History              // nil: everything passes through
	renew   []func(context.Context) error // what a reload opens anew
	store   *reopened                     // nil without a store whose segments are resolved here
	closers []func() error                // in the order in which they are to be called
}

func (h *gatewayHistory) close() error {
	var errs []error
	for _, c := range h.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// openGatewayHistory opens the store and whoever knows what lies in it. A cluster that cannot be reached now is tried again, while everything passes through; one that
// refuses is an error.
func openGatewayHistory(ctx context.Context, cfg *config.Gateway, up *gatewayUpstream, signer *fileserver.Signer, reg prometheus.Registerer, log *slog.Logger) (h *gatewayHistory, err error) {
	h = &gatewayHistory{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if cfg.Resolve == "metadata" && cfg.Store == "" {
		log.Info("no store: everything passes through")
		return h, nil
	}
	budget := remote.NewBudget(cfg.RemoteReadMemory)
	read := remote.Options{Budget: budget, ChunkSize: cfg.RemoteReadChunk, Parallelism: cfg.RemoteReadParallelism, ReadAhead: cfg.RemoteReadAhead, Hedge: true,
		Deadline: cfg.RemoteFetchMaxWait, Logger: log}
	if cfg.RemoteReadCache > 0 {
		read.Cache = remote.NewCache(budget, cfg.RemoteReadCache)
		h.closers = append(h.closers, func() error { read.Cache.Close(); return nil })
	}
	h.options = &gateway.History{Read: read, Offer: cfg.LocationEnable, MaxFallbacks: cfg.RemoteReadMaxFallbacks, UpstreamBytes: cfg.FetchResponseMemory}
	if cfg.Resolve == "upstream" {
		return h, h.follow(ctx, cfg, log)
	}
	open := func(ctx context.Context) (remotestorage.RemoteStorageManager, io.Closer, error) {
		return openStorage(ctx, storageOptions{URL: cfg.Store, Layout: cfg.StoreLayout, Prefix: cfg.StorePrefix, Keys: cfg.KeyFiles(), Expiry: cfg.LocationExpiry, Signer: signer}, log)
	}
	store, err := newRenewed(ctx, log, open)
	if err != nil {
		return h, err
	}
	h.store, h.renew = &reopened{store}, append(h.renew, store.renew)
	rsm := gateway.Timed(h.store, gateway.NewStoreMetrics(reg))
	if far := (distance.Distance{Latency: cfg.StoreLatency, BytesPerSecond: cfg.StoreStreamRate}); !far.IsZero() {
		log.Info("a distance lies before reads from the store", "distance", far.String())
		rsm = far.Manager(rsm)
	}
	policy, err := metadatatopic.ParsePolicy(cfg.ReadPolicy)
	if err != nil {
		return h, err
	}
	late, err := newLateResolver(ctx, metadatatopic.Options{Seeds: up.seeds, ClientOptions: up.options(), Storage: rsm, Policy: policy, TxnIndexEmptyKnown: cfg.TxnIndexEmptyKnown,
		IndexCacheBytes: cfg.IndexCacheBytes, Logger: log}, log)
	if err != nil {
		return h, err
	}
	h.options.Resolver, h.options.Status = late, late.status
	// The resolver asks the store, which is to be there until it has ended.
	h.closers = append(h.closers, late.close, h.store.close)
	return h, nil
}

// follow makes a sidecar: upstream says where history lies.
func (h *gatewayHistory) follow(ctx context.Context, cfg *config.Gateway, log *slog.Logger) error {
	http, err := httpfetcher.New(httpfetcher.Options{AllowedHosts: config.SplitList(cfg.AllowedHosts), AllowedRoots: config.SplitList(cfg.AllowedRoots)})
	if err != nil {
		return err
	}
	h.closers = append(h.closers, http.Close)
	h.options.Locations = &history.Locations{Formats: []string{remotestorage.StorageFormatApacheKafkaV1}, HTTP: http}
	if cfg.Store == "" {
		return nil
	}
	var prefix string // the same each time
	store, err := newRenewed(ctx, log, func(ctx context.Context) (remotestorage.RemoteStorageFetcher, io.Closer, error) {
		store, err := openStore(ctx, cfg.Store, nil)
		if err != nil {
			return nil, nil, err
		}
		prefix = store.URL
		return bucket.NewFetcher(bucket.FetcherOptions{Stores: []*bucket.Store{store}}), store, nil
	})
	if err != nil {
		return err
	}
	h.closers, h.renew = append(h.closers, store.close), append(h.renew, store.renew)
	h.options.Locations.Fetchers = []history.Fetcher{{Prefix: prefix, Fetcher: reopenedFetcher{store}}}
	return nil
}

// lateResolver is a resolver that may come later, when the cluster is there. Until then everything is the brokers'.
type lateResolver struct {
	now    atomic.Pointer[metadatatopic.Resolver]
	err    atomic.Pointer[error] // why it is not there yet
	cancel context.CancelFunc
	done   sync.WaitGroup
}

const (
	resolverPatience = 30 * time.Second // of one try
	resolverRetry    = 5 * time.Second
)

func newLateResolver(ctx context.Context, o metadatatopic.Options, log *slog.Logger) (*lateResolver, error) {
	l := &lateResolver{}
	err := l.try(ctx, o)
	switch {
	case errors.Is(err, metadatatopic.ErrNotAllowed), ctx.Err() != nil: // a topic that is not there may come: brokers make it after their start
		return nil, fmt.Errorf("history cannot be read: %w", err)
	case err == nil:
		l.cancel = func() {}
		return l, nil
	}
	log.Warn("the metadata topic cannot be read yet; everything passes through until it can", "err", err)
	ctx, l.cancel = context.WithCancel(context.Background())
	l.done.Go(func() {
		for {
			select {
			case <-time.After(resolverRetry):
			case <-ctx.Done():
				return
			}
			if err := l.try(ctx, o); err == nil {
				log.Info("the metadata topic can be read")
				return
			}
		}
	})
	return l, nil
}

func (l *lateResolver) try(ctx context.Context, o metadatatopic.Options) error {
	ctx, cancel := context.WithTimeout(ctx, resolverPatience)
	defer cancel()
	r, err := metadatatopic.New(ctx, o)
	if err != nil {
		l.err.Store(&err)
		return err
	}
	l.now.Store(r)
	return nil
}

func (l *lateResolver) close() error {
	l.cancel()
	l.done.Wait()
	if r := l.now.Load(); r != nil {
		r.Close()
	}
	return nil
}

func (l *lateResolver) status() gateway.Status {
	r := l.now.Load()
	if r == nil {
		return gateway.Status{Err: *l.err.Load()}
	}
	s := r.Status()
	return gateway.Status{Ready: r.Ready(), Segments: s.Segments, Lag: s.Lag, Err: s.Err}
}

func (l *lateResolver) Topic(ctx context.Context, name string, id remotestorage.UUID) (string, remotestorage.UUID, error) {
	if r := l.now.Load(); r != nil {
		return r.Topic(ctx, name, id)
	}
	return "", remotestorage.UUID{}, resolve.ErrNotReady
}

func (l *lateResolver) Facts(ctx context.Context, tp remotestorage.TopicIDPartition) (resolve.Facts, error) {
	if r := l.now.Load(); r != nil {
		return r.Facts(ctx, tp)
	}
	return resolve.Facts{}, resolve.ErrNotReady
}

func (l *lateResolver) Known(tp remotestorage.TopicIDPartition) (resolve.Facts, bool) {
	if r := l.now.Load(); r != nil {
		return r.Known(tp)
	}
	return resolve.Facts{}, false
}

func (l *lateResolver) Local(tp remotestorage.TopicIDPartition, offset int64) bool {
	if r := l.now.Load(); r != nil {
		return r.Local(tp, offset)
	}
	return true
}

func (l *lateResolver) Resolve(ctx context.Context, q resolve.Question) (remote.Range, error) {
	if r := l.now.Load(); r != nil {
		return r.Resolve(ctx, q)
	}
	return remote.Range{}, resolve.ErrNotReady
}

func (l *lateResolver) Location(ctx context.Context, q resolve.Question, rng *remote.Range) (*remotestorage.Location, error) {
	if r := l.now.Load(); r != nil {
		return r.Location(ctx, q, rng)
	}
	return nil, resolve.ErrNotReady
}

func (l *lateResolver) Learn(tp remotestorage.TopicIDPartition, n resolve.Learnt) {
	if r := l.now.Load(); r != nil {
		r.Learn(tp, n)
	}
}

func (l *lateResolver) Moved(tp remotestorage.TopicIDPartition) {
	if r := l.now.Load(); r != nil {
		r.Moved(tp)
	}
}
