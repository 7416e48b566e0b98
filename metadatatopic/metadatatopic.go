// Package metadatatopic finds history on a cluster that knows nothing of Rewind: it reads Apache Kafka's own metadata topic, `__remote_log_metadata`, into an
// index of every remote segment, asks the leaders what else has to be known of the partitions that somebody reads (leader epochs, log start, local log start,
// high watermark, last stable offset), and from both tells which bytes of which object hold an offset.
//
// It is handed to the library (rewind.Options.Resolver) and used by the gateway. Nothing else of a program need import it. It brings kgo along, which a program
// without it does not get.
//
// # What the principal must be allowed to do
//
// The resolver has a client, and so a principal, of its own: Options.ClientOptions hold its security settings. With an authorizer on the cluster it needs
//
//   - Read and Describe on the topic `__remote_log_metadata`
//   - Describe on each topic whose history is to be read
//
// and no more: nothing on the cluster, no group, and no Read on the topics themselves. New checks the first, and names what is missing; a topic that it may not
// describe is left to the brokers, with a warning that says so. Whoever may read the metadata topic learns the names and the layout of all tiered topics.
//
// # Goroutines
//
// A Resolver owns one goroutine that reads the metadata topic, one that keeps facts fresh, those that wait for a broker's answer, and kgo's. Close waits for
// all of them. The methods of resolve.Resolver work on their caller's goroutine, within its context.
package metadatatopic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// DefaultTopic is where Apache Kafka's TopicBasedRemoteLogMetadataManager writes.
const DefaultTopic = "__remote_log_metadata"

var (
	// ErrNoTopic: the cluster has no metadata topic. Tiered storage is off, or keeps its metadata elsewhere.
	ErrNoTopic = errors.New("the metadata topic does not exist")
	// ErrNotAllowed: the principal lacks an ACL, which the error names.
	ErrNotAllowed = errors.New("not authorized")
	// ErrClosed: the resolver was closed.
	ErrClosed = errors.New("resolver is closed")
)

// Policy says which history is read from the store (remote.read.policy).
type Policy int

const (
	// NotLocal reads from the store what the leader has no longer on its own disk: what Apache Kafka itself would read there.
	NotLocal Policy = iota
	// Tiered reads from the store whatever is in it.
	Tiered
)

func (p Policy) String() string {
	switch p {
	case NotLocal:
		return "not-local"
	case Tiered:
		return "tiered"
	}
	return fmt.Sprintf("Policy(%d)", int(p))
}

// ParsePolicy reads a value of remote.read.policy.
func ParsePolicy(s string) (Policy, error) {
	for _, p := range []Policy{NotLocal, Tiered} {
		if s == p.String() {
			return p, nil
		}
	}
	return 0, fmt.Errorf("remote.read.policy is %q, want %q or %q", s, NotLocal, Tiered)
}

// Metrics hears of events. Methods are called from several goroutines and must not block. Embed NoMetrics to be safe from new ones.
type Metrics interface {
	// Records: records of the metadata topic were applied, and others skipped as unknown or wrong.
	Records(applied, skipped int)
	// Asked: a request for facts about so many partitions ended. What is the request's name in Kafka: "Metadata", "ListOffsets", "OffsetForLeaderEpoch".
	Asked(what string, partitions int, took time.Duration, err error)
	// IndexFetched: an index of a segment was read from the store, or could not be.
	IndexFetched(kind remotestorage.IndexType, bytes int, err error)
	// Scanned: an index was missing or short, and so many bytes of a segment were read to find a position.
	Scanned(bytes int64)
}

// NoMetrics hears nothing.
type NoMetrics struct{}

func (NoMetrics) Records(int, int)                                 {}
func (NoMetrics) Asked(string, int, time.Duration, error)          {}
func (NoMetrics) IndexFetched(remotestorage.IndexType, int, error) {}
func (NoMetrics) Scanned(int64)                                    {}

// Options of a Resolver. Seeds and Storage are needed.
type Options struct {
	// Seeds are host:port of some brokers.
	Seeds []string
	// ClientOptions are security settings and whatever else the resolver's own client needs. Options of a consumer do not belong here: the resolver joins no group and reads
	// nothing but the metadata topic whatever they say, and where kgo does not bear them without a group or a pattern, New gives its error.
	ClientOptions []kgo.Opt
	// Storage is where the segments lie: what reads the layout that the cluster's plug-in writes.
	Storage remotestorage.RemoteStorageManager
	Policy  Policy
	Topic   string // "": DefaultTopic
	// TxnIndexEmptyKnown says that every broker that ever wrote to the topic sets TxnIndexEmpty, as Apache Kafka 4.4 does and older ones do not. Then a transaction index that is
	// absent without that mark is damage. Otherwise committed readers of such a segment are left to the brokers, which is always right.
	TxnIndexEmptyKnown bool
	// IndexCacheBytes bounds the cache of offset and transaction indexes; 0: 64 MiB.
	IndexCacheBytes int64
	Logger          *slog.Logger
	Metrics         Metrics

	lostAfter time.Duration // 0: lostAfter
}

// Validate says everything that is wrong with the options; New calls it.
func (o *Options) Validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(o.Seeds) == 0, "Seeds is empty, want host:port of at least one broker")
	check(o.Storage == nil, "Storage is nil, want what reads the segments")
	check(o.Policy != NotLocal && o.Policy != Tiered, "Policy is %d, want NotLocal or Tiered", int(o.Policy))
	check(o.IndexCacheBytes < 0, "IndexCacheBytes is %d, want 0 (%d) or more", o.IndexCacheBytes, int64(locate.DefaultIndexCacheBytes))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("metadatatopic.Options: %w", err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Topic == "" {
		o.Topic = DefaultTopic
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NoMetrics{}
	}
	if o.lostAfter == 0 {
		o.lostAfter = lostAfter
	}
	return o
}

// client are the options of both clients.
func (o *Options) client(more ...kgo.Opt) []kgo.Opt {
	all := append([]kgo.Opt{}, o.ClientOptions...)
	all = append(all, kgo.SeedBrokers(o.Seeds...), kgo.ConsumerGroup(""), kgo.ShareGroup(""), kgo.ConsumeTopics(), kgo.ConsumePartitions(nil), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(metadataMinAge))
	return append(all, more...)
}

// newClient makes one of them. What kgo has against options that are not of its own making is for whoever gave them.
func (o *Options) newClient(more ...kgo.Opt) (*kgo.Client, error) {
	c, err := kgo.NewClient(o.client(more...)...)
	if err != nil && len(o.ClientOptions) > 0 {
		return nil, fmt.Errorf("ClientOptions: %w: give those that connect (security, dialing), not a consumer's", err)
	}
	return c, err
}

// metadataMinAge is how soon kgo looks again for leaders that it has not found.
const metadataMinAge = time.Second

// Resolver implements internal/resolve's Resolver. It is safe for concurrent use.
type Resolver struct {
	opts   Options
	log    *slog.Logger
	client *kgo.Client // asks; each reading of the topic has a client of its own
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	reading atomic.Pointer[reading]
	facts   *facts
	names   *names

	mu     sync.Mutex
	closed bool
}

var _ resolve.Resolver = (*Resolver)(nil)

// New connects to the cluster, checks that the metadata topic is there and may be read, and begins to read it. It does not wait for its end: see Ready.
func New(ctx context.Context, o Options) (*Resolver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	client, err := o.newClient()
	if err != nil {
		return nil, fmt.Errorf("metadatatopic: %w", err)
	}
	r := &Resolver{opts: o, log: o.Logger, client: client}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if err := r.open(ctx); err != nil {
		r.Close()
		return nil, fmt.Errorf("metadatatopic: %w", err)
	}
	return r, nil
}

// Close ends everything and waits for it. Methods called later find nothing ready.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.done.Wait()
	if d := r.reading.Load(); d != nil {
		d.close()
	}
	r.client.Close()
}

// spawn starts a goroutine that Close waits for; false if it is too late for that.
func (r *Resolver) spawn(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.done.Go(fn)
	return true
}

// Ready tells whether the metadata topic has been read to the end that it had when the resolver was made, and can be read on. Otherwise the fetches of some or all
// topics are left to the brokers; Status tells why.
func (r *Resolver) Ready() bool {
	d := r.reading.Load()
	return d.unread.Load() == 0 && !d.gone.Load() && len(d.lostPartitions()) == 0
}

// Lag is how many records of the metadata topic have not been read yet.
func (r *Resolver) Lag() int64 { return r.reading.Load().lag() }

// Segments is how many remote segments are known, in any state; none once the metadata topic is not there any more.
func (r *Resolver) Segments() int { return r.reading.Load().segments() }

// Status is the state of the reading, for people and for checks of health.
type Status struct {
	Partitions, Unread int // metadata partitions, and how many of them have not been read to their end
	Applied, Skipped   int64
	Segments           int
	Lag                int64
	// Torn are metadata partitions of which records are missing: history of which nothing is known is left to the brokers.
	Torn []int32
	// Gone: the topic was deleted, or may not be read any more. All history is left to the brokers until it can be read again.
	Gone bool
	// Lost are metadata partitions that have not been readable for a while: the history of which they tell is left to the brokers.
	Lost []int32
	// Err is why the topic cannot be read now; nil if it can.
	Err error
}

// Status tells how the reading of the metadata topic is doing.
func (r *Resolver) Status() Status {
	d := r.reading.Load()
	s := Status{
		Partitions: len(d.progress), Unread: int(d.unread.Load()), Applied: d.applied.Load(), Skipped: d.skipped.Load(), Segments: d.segments(), Lag: d.lag(),
		Gone: d.gone.Load(), Lost: d.lostPartitions(),
	}
	for i := range d.progress {
		if d.progress[i].torn.Load() {
			s.Torn = append(s.Torn, int32(i))
		}
	}
	if err := d.err.Load(); err != nil {
		s.Err = *err
	} else if len(s.Lost) > 0 {
		s.Err = fmt.Errorf("%w: %v", errLost, s.Lost)
	}
	return s
}
