// Package doctor looks at somebody's Kafka cluster and its object store from outside, and says what stands between a consumer and history that is read directly: each
// finding with what to do about it. It changes nothing anywhere; what it reads of records is one batch per partition.
//
// The command rewind doctor imports it. Run asks; what is judged of an answer is in functions that ask nobody. All goroutines end with Run: a
// few that look at partitions, those of a metadatatopic.Resolver and of kgo clients.
package doctor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/upstream"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options say what is to be looked at. Only Seeds are needed.
type Options struct {
	Seeds  []string
	Client *upstream.Client // as whom; nil: PLAINTEXT
	Topics []string         // none: those of Group, else what is tiered is listed
	Group  string
	// Storage reads the store; nil if none was given. StorageErr is why it could not be opened.
	Storage    remotestorage.RemoteStorageManager
	StorageErr error
	Store      string // its URL, for people
	Layout     string // kafka or aiven
	// AllowedHosts are hosts that a consumer was told to open, beyond those that it opens by itself.
	AllowedHosts []string
	Patience     time.Duration // for each answer of the cluster and of the store; 0: 10 s
	Logger       *slog.Logger
}

const defaultPatience = 10 * time.Second

// requestor sends a request where it belongs: *kgo.Client.
type requestor = kmsg.Requestor

// history is what a metadatatopic.Resolver knows.
type history interface {
	Status() metadatatopic.Status
	Resolve(context.Context, resolve.Question) (remote.Range, error)
	Location(context.Context, resolve.Question, *remote.Range) (*remotestorage.Location, error)
	History(context.Context, remotestorage.TopicIDPartition) ([]remotelog.Found, error)
}

// doctor is one examination.
type doctor struct {
	o      Options
	ask    requestor
	broker func(id int32) requestor
	open   func(context.Context) (history, func(), error) // the metadata topic
	speaks func(ctx context.Context, seed string) string  // the protocol of who listens there, if it is a known one that is not Kafka's
	alone  func(context.Context) error                    // connects without the principal's own certificate; nil if it has none or SASL

	rep     Report
	brokers []kmsg.MetadataResponseBroker
	newest  map[int16]int16 // versions of each API that all brokers have
	plugin  string          // class of the brokers' RemoteStorageManager, "" if not known
	read    bool            // a segment was read and understood
	signs   []signing       // what is known of the locations of each topic
	topics  []*topic
}

// Run examines. It gives an error only if it was not able to at all; what is wrong with the cluster is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Seeds) == 0 {
		return nil, errors.New("no broker was named")
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	opts := append(o.Client.Opts(), kgo.DialTimeout(o.Patience/2), kgo.RequestRetries(2), kgo.RetryTimeout(o.Patience), kgo.DisableClientMetrics())
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(o.Seeds...))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	d := &doctor{o: o, ask: client, broker: func(id int32) requestor { return client.Broker(int(id)) }}
	d.speaks = func(ctx context.Context, seed string) string { return greet(ctx, seed, o.Client.ForeignTLS()) }
	d.open = func(ctx context.Context) (history, func(), error) {
		storage := o.Storage
		if storage == nil {
			storage = noStorage{}
		}
		r, err := metadatatopic.New(ctx, metadatatopic.Options{Seeds: o.Seeds, ClientOptions: opts, Storage: storage, Policy: metadatatopic.NotLocal, Logger: o.Logger})
		if err != nil {
			return nil, nil, err
		}
		return r, func() { r.Close() }, nil
	}
	if o.Client.HasCertificate() && o.Client.SASL() == "" {
		d.alone = func(ctx context.Context) error { return withoutCertificate(ctx, o) }
	}
	d.examine(ctx)
	return &d.rep, ctx.Err()
}

// examine goes from what everything needs to what only readers need. What cannot be judged without something that is missing is left out.
func (d *doctor) examine(ctx context.Context) {
	if !d.cluster(ctx) {
		return
	}
	d.tiering(ctx)
	d.chosenTopics(ctx)
	d.store(ctx)
	h, end := d.metadata(ctx)
	if h != nil {
		defer end()
	}
	d.partitions(ctx, h)
	d.rep.Findings = append(d.rep.Findings, judgeSigning(d.signs, d.locations(ctx))...)
	d.judgePlugin()
	d.trust(ctx)
}

// limited bounds one question.
func (d *doctor) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.o.Patience)
}

// withoutCertificate connects as the gateway does for its clients.
func withoutCertificate(ctx context.Context, o Options) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(o.Seeds...), kgo.DialTLSConfig(o.Client.ForeignTLS()), kgo.RequestRetries(0), kgo.DialTimeout(o.Patience/2))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}
