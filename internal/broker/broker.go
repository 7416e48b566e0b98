package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/sasl"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options make a Broker.
type Options struct {
	Config     *config.Broker                     // nil: the defaults, which name no data directory
	FS         vfs.FS                             // nil: the operating system's
	RSM        remotestorage.RemoteStorageManager // nil: no remote storage
	Logger     *slog.Logger                       // nil: discarded
	Level      *slog.LevelVar                     // of Logger, for clients to alter; nil: they cannot
	Clock      func() time.Time                   // nil: the system's
	Registerer prometheus.Registerer              // nil: no metrics

	passive bool // for tests: what is remote is read, and nothing is copied or deleted
}

// Broker is one node.
type Broker struct {
	log       *slog.Logger
	level     *slog.LevelVar
	now       func() time.Time
	fs        vfs.FS
	dir       *logdir.Dir
	nodeID    int32
	clusterID string

	conf        atomic.Pointer[config.Broker]
	topics      *topics.Registry
	logs        *logs
	files       *partlog.Files
	descriptors descriptors
	producerIDs *producerIDs
	sessions    *session.Cache
	groups      *groupService
	shares      *shareService
	txns        *txnService
	responses   *fetch.Memory
	scratches   scratches
	remote      *remoteSide // nil without remote storage
	apis        map[int16]api
	metrics     *metrics

	authorizer *acl.Authorizer // nil: whoever comes in may do everything
	secrets    *secrets

	resourceConfigs *resourceConfigs
	features        *features
	quotas          *quotas

	tokenKeys *sasl.Keys // nil without OAUTHBEARER
	doors     []*door    // of the listeners, in their order

	// changing is held while the set of topics or their configurations change, so that registry and logs change together.
	changing sync.Mutex

	// checkpointing is held while the logs' bounds are read and written down. checkpointed are the topics that the checkpoints may have something of.
	checkpointing sync.Mutex
	checkpointed  map[string]bool

	// altering is held while a client's change of a configuration is read, judged, written down and put in force: one at a time.
	altering sync.Mutex

	server    *server
	listeners []net.Listener

	stop       context.CancelFunc // ends the background tasks
	background sync.WaitGroup
	closing    sync.Once
	closeErr   error
}

// New makes a broker from its data directory: all logs are open and recovered when it returns. Nothing is served before Start; Close must follow.
func New(o Options) (*Broker, error) {
	b, err := newBroker(o)
	if err != nil {
		return nil, err
	}
	if err := b.open(); err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	return b, nil
}

func newBroker(o Options) (*Broker, error) {
	if o.Config == nil {
		o.Config = config.NewBroker()
	}
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	b := &Broker{log: o.Logger, level: o.Level, now: o.Clock, fs: o.FS, responses: fetch.NewMemory(o.Config.FetchResponseMemory)}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.now == nil {
		b.now = time.Now
	}
	if b.fs == nil {
		b.fs = vfs.Default
	}
	b.descriptors = processDescriptors()
	b.files = partlog.NewFiles(b.descriptors.logs())
	b.fs = b.files.FS(atomicfile.WithFolders(b.fs))
	b.conf.Store(o.Config.Clone())
	b.metrics = newMetrics(o.Registerer, b)
	if o.RSM != nil {
		b.remote = newRemoteSide(b, &o)
	}
	return b, nil
}

func (b *Broker) open() error {
	cfg := b.config()
	dir, err := logdir.Open(b.fs, cfg.DataDir, logdir.Options{ClusterID: cfg.ClusterID, NodeID: cfg.NodeID})
	if err != nil {
		return err
	}
	b.dir = dir
	b.nodeID, b.clusterID = dir.Meta().NodeID, dir.Meta().ClusterID
	if !dir.Clean() {
		b.log.Info("the last stop was not clean: logs are recovered", "data.dir", cfg.DataDir, "leader.epoch", dir.LeaderEpoch())
	}
	if err := b.loadDynamic(); err != nil {
		return err
	}
	if err := b.openSecurity(); err != nil {
		return err
	}
	if b.resourceConfigs, err = openResourceConfigs(b.fs, cfg.DataDir); err != nil {
		return err
	}
	if b.features, err = openFeatures(b.fs, cfg.DataDir); err != nil {
		return err
	}
	if b.quotas, err = openQuotas(b.fs, cfg); err != nil {
		return err
	}
	b.sessions = session.NewCache(cfg.FetchSessionSlots)
	if b.producerIDs, err = openProducerIDs(b.fs, cfg.DataDir); err != nil {
		return err
	}
	if b.topics, err = topics.Open(b.fs, b.fs.PathJoin(cfg.DataDir, "topics")); err != nil {
		return err
	}
	if b.logs, err = b.openLogs(); err != nil {
		return err
	}
	if b.remote != nil {
		if err := b.remote.open(); err != nil {
			return err
		}
	}
	b.warnOfLostHistory()
	b.openGroups()
	b.openTransactions()
	b.openShares()
	b.apis = b.apiTable()
	return nil
}

// config is the configuration in force. It is not to be changed; see setConfig.
func (b *Broker) config() *config.Broker { return b.conf.Load() }

// openSecurity makes what says who may come in and what they may do.
func (b *Broker) openSecurity() (err error) {
	cfg := b.config()
	if cfg.Authorizer != "" {
		b.authorizer = acl.New(acl.Options{SuperUsers: cfg.SuperUserList(), AllowEveryoneIfNoACLFound: cfg.AllowIfNoACL})
	}
	if b.secrets, err = openSecrets(b.fs, cfg.DataDir, b.authorizer); err != nil {
		return err
	}
	b.doors, err = b.openDoors(context.Background())
	return err
}

// Start listens at every address of the configuration and begins to serve.
func (b *Broker) Start(ctx context.Context) error {
	list, err := b.config().Listeners()
	if err != nil {
		return err
	}
	var listeners []net.Listener
	for i := range list {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", list[i].Address)
		if err != nil {
			err = fmt.Errorf("listening for clients: %w", err)
			for _, open := range listeners {
				err = errors.Join(err, open.Close())
			}
			return err
		}
		listeners = append(listeners, l)
	}
	b.Serve(listeners...)
	return nil
}

// Serve begins to serve on listeners of the caller's, in the order of the configuration's, which Close closes.
func (b *Broker) Serve(listeners ...net.Listener) {
	cfg := b.config()
	lim := defaultLimits()
	lim.requestBytes, lim.connections, lim.idle = cfg.SocketRequestMaxBytes, b.descriptors.connections(), cfg.ConnectionsMaxIdle
	b.server = newServer(b.apis, lim, b.log)
	b.server.now = b.now
	b.server.quotas = b.quotas.Meters
	b.server.most = func(from netip.Addr) (int, int) { return b.config().MaxConnections, b.config().MaxConnectionsOf(from) }
	b.server.stats = b.metrics.serverStats()
	b.server.gone = b.connectionGone
	b.listeners = listeners
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.startBackground(ctx)
	b.log.Info("file descriptors", "limit", b.descriptors.limit, "for.logs", b.descriptors.logs(), "connections", lim.connections)
	for i, l := range listeners {
		b.server.serve(l, b.doors[i])
		if b.openToAll(b.doors[i], l.Addr()) {
			b.log.Warn("whoever reaches this listener may do everything: it asks nobody who they are, and there is no authorizer", "listener", b.doors[i].name, "address", l.Addr().String())
		}
		b.log.Info("serving", "listener", b.doors[i].name, "address", l.Addr().String(), "protocol", string(b.doors[i].protocol), "node.id", b.nodeID, "cluster.id", b.clusterID)
	}
}

// openToAll tells whether a listener lets anybody do everything who is not on this machine.
func (b *Broker) openToAll(d *door, a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback() && b.authorizer == nil && d.mechanisms == nil && !d.certificates
}

// HTTPConnections is how many connections whatever else the process serves may have at one time, as far as its descriptors go.
func (b *Broker) HTTPConnections() int { return b.descriptors.http() }

// Addr is the address of the first listener.
func (b *Broker) Addr() net.Addr { return b.listeners[0].Addr() }

// AddrOf is the address of a listener by its name, nil if there is none.
func (b *Broker) AddrOf(name string) net.Addr {
	for i, l := range b.listeners {
		if b.doors[i].name == name {
			return l.Addr()
		}
	}
	return nil
}

// Sent is how many bytes of responses were written to clients since the start.
func (b *Broker) Sent() int64 { return b.metrics.sentTotal.Load() }

// Close ends serving and the background tasks, closes the logs and marks the stop clean.
func (b *Broker) Close(context.Context) error {
	b.closing.Do(func() { b.closeErr = b.close() })
	return b.closeErr
}

func (b *Broker) close() error {
	if b.server != nil {
		b.server.close()
	}
	if b.stop != nil {
		b.stop()
	}
	b.background.Wait()
	b.closeDoors()
	b.closeShares() // first: they and the transactions end in the groups
	b.closeTransactions()
	b.closeGroups()
	if b.remote != nil {
		b.remote.close()
	}
	offsets, err := b.logs.close()
	if err != nil {
		// What could not be closed is recovered at the next start, which it needs the absent marker for.
		return errors.Join(err, b.dir.Close())
	}
	b.checkpointing.Lock()
	err = b.writeCheckpoints(offsets)
	b.checkpointing.Unlock()
	if err != nil {
		return errors.Join(err, b.dir.Close())
	}
	return errors.Join(b.dir.MarkClean(), b.dir.Close())
}

// abandon gives back what a failed open holds, without marking anything clean.
func (b *Broker) abandon() error {
	var errs []error
	b.closeDoors()
	b.closeShares()
	b.closeTransactions()
	b.closeGroups()
	if b.remote != nil {
		b.remote.close()
	}
	if b.logs != nil {
		_, err := b.logs.close()
		errs = append(errs, err)
	}
	if b.dir != nil {
		errs = append(errs, b.dir.Close())
	}
	return errors.Join(errs...)
}

func (b *Broker) connectionGone(c *conn) {
	b.shares.connectionGone(c.id)
	if b.remote != nil {
		b.remote.pool.Drop(c.id)
	}
}

// advertised is the address that a client is told: the configured one, or the one that it reached us at.
func (b *Broker) advertised(c *conn) (string, int32) {
	address := ""
	if c != nil && c.door != nil {
		address = b.config().Advertised(c.door.name)
	}
	if address == "" && c != nil && c.local != nil {
		address = c.local.String()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return host, 0
	}
	return host, int32(n)
}

func (b *Broker) coreHandlers() []api {
	return []api{
		later(3, 13, b.handleProduce),
		later(4, 18, b.handleFetch),
		on(1, 11, b.handleListOffsets),
		on(0, 13, b.handleMetadata),
		on(0, 6, b.handleFindCoordinator),
		on(0, maxApiVersions, b.handleApiVersions),
		on(2, 7, b.handleCreateTopics),
		on(1, 6, b.handleDeleteTopics),
		on(0, 2, b.handleDeleteRecords),
		on(0, 5, b.handleInitProducerID),
		on(2, 4, b.handleOffsetForLeaderEpoch),
		on(1, 5, b.handleDescribeLogDirs),
		on(0, 3, b.handleCreatePartitions),
		on(0, 2, b.handleDescribeCluster),
		on(0, 0, b.handleDescribeTopicPartitions),
		later(0, 1, b.handleSaslHandshake),
		later(0, 2, b.handleSaslAuthenticate),
	}
}
