package config

import (
	"slices"
	"strings"
)

// brokerAliases are other names that Kafka accepts for a key.
var brokerAliases = map[string]string{
	"log.dir":   "log.dirs",
	"broker.id": "node.id",
}

// maxMillis keeps a duration in milliseconds within time.Duration.
const maxMillis = maxLong / 1_000_000

// brokerKeys are all broker configurations, in the order of their names.
var brokerKeys = slices.SortedFunc(slices.Values(slices.Concat(coreKeys, connectionKeys, securityKeys, groupBrokerKeys, quotaKeys)), func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })

// coreKeys are those that have nothing to do with security.
var coreKeys = []*Key{
	{
		Name: "acks.all.sync", Kind: Boolean, Default: "true", check: boolean, Dynamic: true, bind: func(b *Broker) any { return &b.AcksAllSync },
		Doc: "acks=all is answered after the records are on stable storage; one sync serves all requests that wait. false: after the write, as acks=1.",
	},
	{
		Name: "advertised.listeners", Kind: List, NoDefault: true, check: listenerList, Allowed: "host:port, or NAME://host:port,...", Dynamic: true, bind: func(b *Broker) any { return &b.AdvertisedListener },
		Doc: "The addresses that clients are told to connect to, by listener. Empty, or a listener left out: the address that they came to.",
	},
	{
		Name: "auto.create.topics.enable", Kind: Boolean, Default: "true", check: boolean, Dynamic: true, bind: func(b *Broker) any { return &b.AutoCreateTopics },
		Doc: "Create a topic when a client that allows it asks for its metadata.",
	},
	{
		Name: "cluster.id", Kind: String, check: anyText, bind: func(b *Broker) any { return &b.ClusterID },
		Doc: "The id of the cluster when the data directory is made. Empty: a random one. It stays as it is in meta.properties afterwards.",
	},
	topicDefault("compression.gzip.level", "compression.gzip.level"),
	topicDefault("compression.lz4.level", "compression.lz4.level"),
	topicDefault("compression.type", "compression.type"),
	topicDefault("compression.zstd.level", "compression.zstd.level"),
	topicDefault("log.remote.copy.lag.bytes", "remote.copy.lag.bytes"),
	topicDefault("log.remote.copy.lag.ms", "remote.copy.lag.ms"),
	topicDefault("max.decompressed.message.bytes", "max.decompressed.message.bytes"),
	{
		Name: "connections.max.idle.ms", Kind: Long, Default: "600000", check: integer(64, 1, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.ConnectionsMaxIdle },
		Doc: "A connection without a request for this long is closed.",
	},
	{
		Name: "delete.topic.enable", Kind: Boolean, Default: "true", check: boolean, Dynamic: true, bind: func(b *Broker) any { return &b.DeleteTopics },
		Doc: "Whether DeleteTopics is allowed.",
	},
	{
		Name: "fetch.max.bytes", Kind: Int, Default: "57671680", check: integer(32, 1024, maxInt), unit: bytesUnit, Dynamic: true, bind: func(b *Broker) any { return &b.FetchMaxBytes },
		Doc: "The most bytes of records in one Fetch response, whatever the client asks for. A first batch that is larger is still returned whole.",
	},
	{
		Name: "fetch.response.memory.bytes", Kind: Long, Default: "268435456", check: integer(64, 1<<20, maxLong), unit: bytesUnit, bind: func(b *Broker) any { return &b.FetchResponseMemory },
		Doc: "Memory for the records of fetch answers that were read and not yet taken by their clients. When it is used up a fetch brings 64 KiB at most.",
	},
	{
		Name: "group.initial.rebalance.delay.ms", Kind: Int, Default: "3000", check: integer(32, 0, maxInt), unit: millisUnit, Dynamic: true, bind: func(b *Broker) any { return &b.GroupInitialRebalanceDelay },
		Doc: "How long the first rebalance of an empty group waits for more members.",
	},
	{
		Name: "group.max.session.timeout.ms", Kind: Int, Default: "1800000", check: integer(32, 1, maxInt), unit: millisUnit, Dynamic: true, bind: func(b *Broker) any { return &b.GroupMaxSessionTimeout },
		Doc: "The longest session timeout that a group member may ask for.",
	},
	{
		Name: "group.max.size", Kind: Int, Default: "2147483647", check: integer(32, 1, maxInt), Dynamic: true, bind: func(b *Broker) any { return &b.GroupMaxSize },
		Doc: "The most members of a group.",
	},
	{
		Name: "group.min.session.timeout.ms", Kind: Int, Default: "6000", check: integer(32, 1, maxInt), unit: millisUnit, Dynamic: true, bind: func(b *Broker) any { return &b.GroupMinSessionTimeout },
		Doc: "The shortest session timeout that a group member may ask for.",
	},
	{
		Name: "http.advertised.listener", Kind: String, check: address, Allowed: "host:port", bind: func(b *Broker) any { return &b.HTTPAdvertised },
		Doc: "The address in the URLs that the broker signs for a directory store; a process of its own (rewind store) may serve it. Empty: the host that clients connect to, with the port of http.listen.",
	},
	{
		Name: "http.metrics.users.file", Kind: String, check: anyText, bind: func(b *Broker) any { return &b.HTTPUsersFile },
		Doc: "A file with a line name=password for each user who may read /metrics of http.listen (basic authentication), read again when it changes. Empty: whoever comes. Signed locations are their own permission, and /healthz says nothing.",
	},
	{
		Name: "http.ssl.keystore.location", Kind: String, check: anyText, bind: func(b *Broker) any { return &b.HTTPKeyStore },
		Doc: "A PEM file with key and certificates (ssl.keystore.location's may be the same), read again when it changes: http.listen speaks TLS, and the URLs that the broker signs are https. Empty: plain HTTP.",
	},
	{
		Name: "http.listen", Kind: String, check: address, Allowed: "host:port", bind: func(b *Broker) any { return &b.HTTPListen },
		Doc: "Where the broker serves HTTP: signed URLs on a directory store, metrics. Empty: nowhere.",
	},
	{
		Name: "listeners", Kind: List, Default: "127.0.0.1:9092", check: listenerList, Allowed: "host:port, or NAME://host:port,...", bind: func(b *Broker) any { return &b.Listen },
		Doc: "The addresses to serve Kafka's protocol on, with a name each; listener.security.protocol.map says what each speaks. A single host:port is PLAINTEXT.",
	},
	{
		Name: "location.url.expiry.ms", Kind: Long, Default: "600000", check: integer(64, 1000, 604_800_000), unit: millisUnit, Allowed: "1000 to 604800000 (7 days)", bind: func(b *Broker) any { return &b.LocationExpiry },
		Doc: "How long a signed location can be opened.",
	},
	{
		Name: "log.cleaner.backoff.ms", Kind: Long, Default: "15000", check: integer(64, 1, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.CleanerBackoff },
		Doc: "How often compacted topics are looked at.",
	},
	topicDefault("log.cleaner.delete.retention.ms", "delete.retention.ms"),
	{
		Name: "log.cleaner.enable", Kind: Boolean, Default: "true", check: boolean, bind: func(b *Broker) any { return &b.CleanerEnable },
		Doc: "Whether compacted topics are compacted.",
	},
	topicDefault("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
	topicDefault("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
	topicDefault("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
	topicDefault("log.cleanup.policy", "cleanup.policy"),
	{
		Name: "log.dirs", Kind: List, NoDefault: true, check: singleDirectory, Allowed: "one directory", bind: func(b *Broker) any { return &b.DataDir },
		Doc: "The data directory. log.dir is accepted too.",
	},
	topicDefault("log.flush.interval.messages", "flush.messages"),
	unsetDefault("log.flush.interval.ms", "flush.ms"),
	{
		Name: "log.flush.scheduler.interval.ms", Kind: Long, Default: "9223372036854775807", check: integer(64, 1, maxLong), unit: millisUnit, Allowed: "1 or more",
		Doc: "How often logs are looked at for records that are older than flush.ms, of which it is the default besides. Not set: every second, where a topic has a flush.ms.",
	},
	{
		Name: "log.flush.offset.checkpoint.interval.ms", Kind: Int, Default: "60000", check: integer(32, 1, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.CheckpointInterval },
		Doc: "How often the recovery points are written, from which a start after a crash reads on.",
	},
	topicDefault("log.index.interval.bytes", "index.interval.bytes"),
	topicDefault("log.index.size.max.bytes", "segment.index.bytes"),
	topicDefault("log.local.retention.bytes", "local.retention.bytes"),
	topicDefault("log.local.retention.ms", "local.retention.ms"),
	topicDefault("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
	topicDefault("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
	topicDefault("log.message.timestamp.type", "message.timestamp.type"),
	topicDefault("log.preallocate", "preallocate"),
	topicDefault("log.retention.bytes", "retention.bytes"),
	{
		Name: "log.retention.check.interval.ms", Kind: Long, Default: "300000", check: integer(64, 1, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.RetentionCheckInterval },
		Doc: "How often retention is applied to the local log. local.retention.ms and local.retention.bytes act at these times, too: a copied segment stays local until the next.",
	},
	scaledDefault("log.retention.hours", "retention.ms", "168", "hours", integer(32, -1, maxInt)),
	scaledDefault("log.retention.minutes", "retention.ms", "", "minutes", integer(32, -1, maxInt)),
	scaledDefault("log.retention.ms", "retention.ms", "", "milliseconds", integer(64, -1, maxLong)),
	scaledDefault("log.roll.hours", "segment.ms", "168", "hours", integer(32, 1, maxInt)),
	{
		Name: "log.roll.jitter.hours", Kind: Int, Default: "0", check: integer(32, 0, maxInt),
		Doc: "The default of the topic configuration segment.jitter.ms, in hours. The key with the finest unit wins.",
	},
	unsetDefault("log.roll.jitter.ms", "segment.jitter.ms"),
	scaledDefault("log.roll.ms", "segment.ms", "", "milliseconds", integer(64, 1, maxLong)),
	topicDefault("log.segment.bytes", "segment.bytes"),
	topicDefault("log.segment.delete.delay.ms", "file.delete.delay.ms"),
	{
		Name: "max.connections", Kind: Int, Default: "2147483647", check: integer(32, 1, maxInt), Dynamic: true, bind: func(b *Broker) any { return &b.MaxConnections },
		Doc: "The most client connections at one time; further ones are closed at once. Half of the process's file descriptors at most (docs/metrics.md).",
	},
	{
		Name: "max.incremental.fetch.session.cache.slots", Kind: Int, Default: "1000", check: integer(32, 0, maxInt), bind: func(b *Broker) any { return &b.FetchSessionSlots },
		Doc: "How many incremental fetch sessions (KIP-227) are remembered.",
	},
	topicDefault("message.max.bytes", "max.message.bytes"),
	topicDefault("min.insync.replicas", "min.insync.replicas"),
	{
		Name: "node.id", Kind: Int, Default: "1", check: integer(32, 0, maxInt), bind: func(b *Broker) any { return &b.NodeID },
		Doc: "The broker's id. broker.id is accepted too.",
	},
	{
		Name: "num.partitions", Kind: Int, Default: "1", check: integer(32, 1, maxInt), Dynamic: true, bind: func(b *Broker) any { return &b.NumPartitions },
		Doc: "The number of partitions of a topic whose creator does not say.",
	},
	{
		Name: "offset.metadata.max.bytes", Kind: Int, Default: "4096", check: integer(32, 0, maxInt), unit: bytesUnit, Dynamic: true, bind: func(b *Broker) any { return &b.OffsetMetadataMaxBytes },
		Doc: "The longest metadata string of a committed offset.",
	},
	{
		Name: "offsets.retention.check.interval.ms", Kind: Long, Default: "600000", check: integer(64, 1, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.OffsetsRetentionCheck },
		Doc: "How often committed offsets are looked through for expired ones.",
	},
	{
		Name: "offsets.retention.minutes", Kind: Int, Default: "10080", check: integer(32, 1, maxInt), Dynamic: true, bind: func(b *Broker) any { return (*minutes)(&b.OffsetsRetention) },
		Doc: "How long committed offsets outlive the last member of their group, or, without members, their last commit.",
	},
	{
		Name: "offsets.topic.num.partitions", Kind: Int, Default: "50", check: integer(32, 1, maxInt), bind: func(b *Broker) any { return &b.OffsetsPartitions },
		Doc: "The number of partitions of __consumer_offsets when it is made. It cannot be changed afterwards.",
	},
	{
		Name: "offsets.topic.segment.bytes", Kind: Int, Default: "104857600", check: integer(32, 1<<20, maxInt), unit: bytesUnit, bind: func(b *Broker) any { return &b.OffsetsSegmentBytes },
		Doc: "segment.bytes of __consumer_offsets when it is made.",
	},
	{
		Name: "producer.id.expiration.ms", Kind: Int, Default: "86400000", check: integer(32, 1, maxInt), unit: millisUnit, Dynamic: true, bind: func(b *Broker) any { return &b.ProducerIDExpiration },
		Doc: "How long an idle producer's sequence numbers are remembered.",
	},
	{
		Name: "remote.fetch.location.enable", Kind: Boolean, Default: "true", check: boolean, Dynamic: true, bind: func(b *Broker) any { return &b.LocationEnable },
		Doc: "Answer clients that ask for it with the location of a remote segment (KIP-1248). false: the broker reads it for them.",
	},
	{
		Name: "remote.fetch.max.wait.ms", Kind: Int, Default: "30000", check: integer(32, 1, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.RemoteFetchMaxWait },
		Doc: "The deadline of one remote read, retries included. A fetch is answered at its own max wait even so; the read goes on and serves the next fetch. Apache Kafka's default is 500, which cancels the read.",
	},
	{
		Name: "remote.log.index.file.cache.total.size.bytes", Kind: Long, Default: "67108864", check: integer(64, 1, maxLong), unit: bytesUnit, bind: func(b *Broker) any { return &b.IndexCacheBytes },
		Doc: "Memory for index files of remote segments. Apache Kafka keeps them on disk, 1 GiB.",
	},
	{
		Name: "remote.log.manager.copier.thread.pool.size", Kind: Int, Default: "4", check: integer(32, 1, 1000), bind: func(b *Broker) any { return &b.TierParallelism },
		Doc: "How many segments are copied at the same time.",
	},
	{
		Name: "remote.log.manager.task.interval.ms", Kind: Long, Default: "30000", check: integer(64, 1, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.TierInterval },
		Doc: "How often partitions are looked through for segments to copy or to delete, besides whenever a segment is closed.",
	},
	{
		Name: "remote.log.metadata.topic.num.partitions", Kind: Int, Default: "50", check: integer(32, 1, maxInt), bind: func(b *Broker) any { return &b.MetadataPartitions },
		Doc: "The number of partitions of __remote_log_metadata when it is made. It cannot be changed afterwards.",
	},
	{
		Name: "remote.read.ahead.enable", Kind: Boolean, Default: "true", check: boolean, bind: func(b *Broker) any { return &b.RemoteReadAhead },
		Doc: "Read further while a reader is sequential.",
	},
	{
		Name: "remote.read.cache.bytes", Kind: Long, Default: "33554432", check: integer(64, 0, maxLong), unit: bytesUnit, bind: func(b *Broker) any { return &b.RemoteReadCache },
		Doc: "How much of the memory may hold chunks for other readers of the same place. 0: no cache.",
	},
	{
		Name: "remote.read.chunk.bytes", Kind: Int, Default: "4194304", check: integer(32, 0, 1<<30), unit: bytesUnit, bind: func(b *Broker) any { return &b.RemoteReadChunk },
		Doc: "The size of one ranged GET. 0: each read asks for what the fetch wants, without read-ahead and cache.",
	},
	{
		Name: "remote.read.memory.bytes", Kind: Long, Default: "67108864", check: integer(64, 0, maxLong), unit: bytesUnit, bind: func(b *Broker) any { return &b.RemoteReadMemory },
		Doc: "Memory for remote reads of the whole process: GETs in flight, bytes not delivered yet, cache. 0: no limit.",
	},
	{
		Name: "remote.read.parallelism", Kind: Int, Default: "16", check: integer(32, 0, 1024), bind: func(b *Broker) any { return &b.RemoteReadParallelism },
		Doc: "The most GETs in flight for one reader. 0: one after the other.",
	},
	{
		Name: "socket.request.max.bytes", Kind: Int, Default: "104857600", check: integer(32, 1024, maxInt), unit: bytesUnit, bind: func(b *Broker) any { return &b.SocketRequestMaxBytes },
		Doc: "The largest request accepted; a larger one closes the connection.",
	},
	{
		Name: "store", Kind: String, Sensitive: true, check: anyText, Allowed: "a URL: file:///dir, s3://bucket?..., gs://bucket, azblob://container", bind: func(b *Broker) any { return &b.Store },
		Doc: "The object store that topics with remote.storage.enable are tiered to. Empty: no remote storage.",
	},
	{
		Name: "store.latency.ms", Kind: Long, Default: "0", check: integer(64, 0, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.StoreLatency },
		Doc: "An artificial wait before the first byte of each read from the store. For tests and demonstrations.",
	},
	{
		Name: "store.stream.rate", Kind: Long, Default: "0", check: integer(64, 0, maxLong), unit: rateUnit, bind: func(b *Broker) any { return &b.StoreStreamRate },
		Doc: "An artificial limit of bytes a second for each stream from the store, 0 for none. For tests and demonstrations.",
	},
	{
		Name: "transaction.max.timeout.ms", Kind: Int, Default: "900000", check: integer(32, 1, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.TransactionMaxTimeout },
		Doc: "The longest transaction.timeout.ms that a producer may ask for.",
	},
	{
		Name: "transaction.remove.expired.transaction.cleanup.interval.ms", Kind: Int, Default: "3600000", check: integer(32, 1, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.TransactionExpiryCheck },
		Doc: "How often transactional ids are looked through for expired ones.",
	},
	{
		Name: "transaction.state.log.num.partitions", Kind: Int, Default: "50", check: integer(32, 1, maxInt), bind: func(b *Broker) any { return &b.TransactionPartitions },
		Doc: "The number of partitions of __transaction_state when it is made. It cannot be changed afterwards.",
	},
	{
		Name: "transaction.state.log.segment.bytes", Kind: Int, Default: "104857600", check: integer(32, 1<<20, maxInt), unit: bytesUnit, bind: func(b *Broker) any { return &b.TransactionSegmentBytes },
		Doc: "segment.bytes of __transaction_state when it is made.",
	},
	{
		Name: "transactional.id.expiration.ms", Kind: Int, Default: "604800000", check: integer(32, 1, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.TransactionalIDExpiry },
		Doc: "How long a transactional id without an open transaction is remembered.",
	},
	topicDefault("unclean.leader.election.enable", "unclean.leader.election.enable"),
}

// topicDefault is a broker key whose only use is to give a topic key its default.
func topicDefault(name, topic string) *Key {
	t := mustTopicKey(topic)
	k := &Key{Name: name, Kind: t.Kind, Default: t.Default, Allowed: t.Allowed, Dynamic: true, check: t.check}
	k.Doc = "The default of the topic configuration " + topic + "."
	if k.Kind == Long || k.Kind == Int {
		k.unit = unitOf(topic)
	}
	return k
}

// unsetDefault is a topicDefault that says nothing until it is set.
func unsetDefault(name, topic string) *Key {
	k := topicDefault(name, topic)
	k.Default, k.NoDefault = "", true
	return k
}

// scaledDefault is a topicDefault that Kafka has in several units.
func scaledDefault(name, topic, value, units string, c check) *Key {
	k := topicDefault(name, topic)
	k.Default, k.NoDefault, k.check, k.Allowed = value, value == "", c, ""
	k.Doc = "The default of the topic configuration " + topic + ", in " + units + ". The key with the finest unit wins."
	if units != "milliseconds" {
		k.Kind, k.unit = Int, noUnit
	}
	return k
}
