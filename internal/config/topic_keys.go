package config

import "math"

const (
	maxInt  = math.MaxInt32
	maxLong = math.MaxInt64

	hour   = 3_600_000
	minute = 60_000
)

// topicKeys are all topic configurations, in the order of their names.
var topicKeys = []*Key{
	{
		Name: "cleanup.policy", Kind: List, Default: "delete", check: listOf("compact", "delete"), Allowed: "delete, compact, both, or empty",
		Synonyms: []Synonym{{"log.cleanup.policy", 1}},
		Doc:      "What happens to old segments: delete removes them by retention.ms and retention.bytes, compact keeps the latest record of each key, empty keeps everything. A topic with compact cannot have remote storage.",
	},
	{
		Name: "compression.gzip.level", Kind: Int, Default: "-1", check: gzipLevel, Allowed: "-1, or 1 to 9",
		Synonyms: []Synonym{{"compression.gzip.level", 1}},
		Doc:      "How hard batches are compressed with gzip where compression.type asks for it and they come otherwise. -1: as gzip does by default.",
	},
	{
		Name: "compression.lz4.level", Kind: Int, Default: "9", check: integer(32, 1, 17), Allowed: "1 to 17",
		Synonyms: []Synonym{{"compression.lz4.level", 1}},
		Doc:      "As compression.gzip.level, of lz4. 9 is its fast way, as in Apache Kafka; all others are slower.",
	},
	{
		Name: "compression.type", Kind: String, Default: "producer", check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Allowed: "uncompressed, zstd, lz4, snappy, gzip or producer",
		Synonyms: []Synonym{{"compression.type", 1}},
		Doc:      "The codec that record batches are stored with. producer: the one that they came with. A batch that comes with another one is opened and compressed anew, which costs time, and memory of which all topics together take 512 MiB at most.",
	},
	{
		Name: "compression.zstd.level", Kind: Int, Default: "3", check: integer(32, -131072, 22), Allowed: "-131072 to 22",
		Synonyms: []Synonym{{"compression.zstd.level", 1}},
		Doc:      "As compression.gzip.level, of zstd. There are four ways: up to 2, 3 to 5, 6 to 9, and above.",
	},
	{
		Name: "delete.retention.ms", Kind: Long, Default: "86400000", check: integer(64, 0, maxLong), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.cleaner.delete.retention.ms", 1}},
		Doc:      "How long the tombstones of a compacted topic stay after they have been compacted.",
	},
	{
		Name: "errors.deadletterqueue.group.enable", Kind: Boolean, Default: "false", check: boolean,
		Doc: "Whether the topic may be the dead letter queue of share groups.",
	},
	{
		Name: "file.delete.delay.ms", Kind: Long, Default: "60000", check: integer(64, 0, maxLong), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.segment.delete.delay.ms", 1}},
		Doc:      "How long the files of a deleted segment stay on disk.",
	},
	{
		Name: "flush.messages", Kind: Long, Default: "9223372036854775807", check: integer(64, 1, maxLong), Allowed: "1 or more",
		Synonyms: []Synonym{{"log.flush.interval.messages", 1}},
		Doc:      "A produce request that brings the records which are not on stable storage yet to this number is answered once they are, whatever its acks. With acks.all.sync and acks=all each request is anyway.",
	},
	{
		Name: "flush.ms", Kind: Long, Default: "9223372036854775807", check: integer(64, 0, maxLong), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.flush.interval.ms", 1}, {"log.flush.scheduler.interval.ms", 1}},
		Doc:      "After how long at most records are brought to stable storage, whatever their acks. Looked at every log.flush.scheduler.interval.ms, or, where that is not set, every second.",
	},
	{
		Name: "follower.replication.throttled.replicas", Kind: List, Default: "", check: throttledReplicas, Allowed: "partition:broker,..., or *",
		Doc: "Kept for Kafka's sake: with one replica nothing is replicated.",
	},
	{
		Name: "index.interval.bytes", Kind: Int, Default: "4096", check: integer(32, 0, maxInt), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.index.interval.bytes", 1}},
		Doc:      "An entry is added to the offset index each time that this many bytes were appended.",
	},
	{
		Name: "internal.segment.bytes", Kind: Int, NoDefault: true, check: integer(32, 1, maxInt), Allowed: "1 or more", Internal: true,
		Doc: "Overrides segment.bytes without its lower bound. For tests.",
	},
	{
		Name: "leader.replication.throttled.replicas", Kind: List, Default: "", check: throttledReplicas, Allowed: "partition:broker,..., or *",
		Doc: "Kept for Kafka's sake: with one replica nothing is replicated.",
	},
	{
		Name: "local.retention.bytes", Kind: Long, Default: "-2", check: integer(64, -2, maxLong), Allowed: "-2 (as retention.bytes), -1 (no limit), 0 or more",
		Synonyms: []Synonym{{"log.local.retention.bytes", 1}},
		Doc:      "How many bytes of a partition stay on the local disk once they are in remote storage. Applied every log.retention.check.interval.ms.",
	},
	{
		Name: "local.retention.ms", Kind: Long, Default: "-2", check: integer(64, -2, maxLong), Allowed: "-2 (as retention.ms), -1 (no limit), 0 or more",
		Synonyms: []Synonym{{"log.local.retention.ms", 1}},
		Doc:      "How long segments stay on the local disk once they are in remote storage. Applied every log.retention.check.interval.ms.",
	},
	{
		Name: "max.compaction.lag.ms", Kind: Long, Default: "9223372036854775807", check: integer(64, 1, maxLong), Allowed: "1 or more",
		Synonyms: []Synonym{{"log.cleaner.max.compaction.lag.ms", 1}},
		Doc:      "A compacted topic is compacted at the latest when a record is this old.",
	},
	{
		Name: "max.decompressed.message.bytes", Kind: Int, Default: "2147483639", check: integer(32, 1, 2147483639), Allowed: "1 to 2147483639",
		Synonyms: []Synonym{{"max.decompressed.message.bytes", 1}},
		Doc:      "The largest record in a batch that comes compressed. With the default batches are opened only where compression.type or cleanup.policy ask for it.",
	},
	{
		Name: "max.message.bytes", Kind: Int, Default: "1048588", check: integer(32, 0, maxInt), Allowed: "0 or more",
		Synonyms: []Synonym{{"message.max.bytes", 1}},
		Doc:      "The largest record batch accepted, after compression.",
	},
	{
		Name: "message.timestamp.after.max.ms", Kind: Long, Default: "3600000", check: integer(64, 0, maxLong), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.message.timestamp.after.max.ms", 1}},
		Doc:      "How far a record's timestamp may lie after the broker's clock. Not looked at with LogAppendTime.",
	},
	{
		Name: "message.timestamp.before.max.ms", Kind: Long, Default: "9223372036854775807", check: integer(64, 0, maxLong), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.message.timestamp.before.max.ms", 1}},
		Doc:      "How far a record's timestamp may lie before the broker's clock. Not looked at with LogAppendTime.",
	},
	{
		Name: "message.timestamp.type", Kind: String, Default: "CreateTime", check: oneOf("CreateTime", "LogAppendTime"), Allowed: "CreateTime or LogAppendTime",
		Synonyms: []Synonym{{"log.message.timestamp.type", 1}},
		Doc:      "Whether a record's timestamp is the producer's or the time of the append.",
	},
	{
		Name: "min.cleanable.dirty.ratio", Kind: Double, Default: "0.5", check: float(0, 1), Allowed: "0 to 1",
		Synonyms: []Synonym{{"log.cleaner.min.cleanable.ratio", 1}},
		Doc:      "A log is compacted once this part of it has not been compacted yet.",
	},
	{
		Name: "min.compaction.lag.ms", Kind: Long, Default: "0", check: integer(64, 0, maxLong), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.cleaner.min.compaction.lag.ms", 1}},
		Doc:      "A record is not compacted away before it is this old.",
	},
	{
		Name: "min.insync.replicas", Kind: Int, Default: "1", check: integer(32, 1, maxInt), Allowed: "1 or more",
		Synonyms: []Synonym{{"min.insync.replicas", 1}},
		Doc:      "How many replicas must have a record before acks=all is answered, but never more than the topic has, which is one here: accepted and described, without effect, as by an Apache Kafka of one broker.",
	},
	{
		Name: "preallocate", Kind: Boolean, Default: "false", check: boolean,
		Synonyms: []Synonym{{"log.preallocate", 1}},
		Doc:      "Reserve the disk space of segment.bytes when a segment gets its first record, where the file system can; what was not needed is given back when the segment is closed. The file is as long as its records all the while.",
	},
	{
		Name: "remote.copy.lag.bytes", Kind: Long, Default: "-1", check: integer(64, -1, maxLong), Allowed: "-1 (as local.retention.bytes), 0 or more",
		Synonyms: []Synonym{{"log.remote.copy.lag.bytes", 1}},
		Doc:      "A closed segment is copied to remote storage once the local log behind it has this many bytes, or once remote.copy.lag.ms lets it. 0 in either of them: at once. A local retention without limit, by -1, never lets it.",
	},
	{
		Name: "remote.copy.lag.ms", Kind: Long, Default: "0", check: integer(64, -1, maxLong), Allowed: "-1 (as local.retention.ms), 0 or more",
		Synonyms: []Synonym{{"log.remote.copy.lag.ms", 1}},
		Doc:      "A closed segment is copied to remote storage once its latest record is this old, or once remote.copy.lag.bytes lets it. 0 in either of them: at once. A local retention without limit, by -1, never lets it.",
	},
	{
		Name: "remote.log.copy.disable", Kind: Boolean, Default: "false", check: boolean,
		Doc: "Stop copying segments to remote storage; what is there stays readable and is kept by retention.ms and retention.bytes.",
	},
	{
		Name: "remote.log.delete.on.disable", Kind: Boolean, Default: "false", check: boolean,
		Doc: "Consent to delete the topic's remote data when remote.storage.enable is switched off, which is refused without it.",
	},
	{
		Name: "remote.storage.enable", Kind: Boolean, Default: "false", check: boolean,
		Doc: "Copy closed segments to the object store (see store) and keep them there for retention.ms and retention.bytes.",
	},
	{
		Name: "retention.bytes", Kind: Long, Default: "-1", check: integer(64, -1, maxLong), Allowed: "-1 (no limit), 0 or more",
		Synonyms: []Synonym{{"log.retention.bytes", 1}},
		Doc:      "How many bytes of a partition are kept, local and remote together.",
	},
	{
		Name: "retention.ms", Kind: Long, Default: "604800000", check: integer(64, -1, maxLong), Allowed: "-1 (no limit), 0 or more",
		Synonyms: []Synonym{{"log.retention.ms", 1}, {"log.retention.minutes", minute}, {"log.retention.hours", hour}},
		Doc:      "How long segments are kept, locally or remotely.",
	},
	{
		Name: "segment.bytes", Kind: Int, Default: "1073741824", check: integer(32, 1<<20, maxInt), Allowed: "1048576 or more",
		Synonyms: []Synonym{{"log.segment.bytes", 1}},
		Doc:      "The size at which a new segment is begun.",
	},
	{
		Name: "segment.index.bytes", Kind: Int, Default: "10485760", check: integer(32, 4, maxInt), Allowed: "4 or more",
		Synonyms: []Synonym{{"log.index.size.max.bytes", 1}},
		Doc:      "The largest size of a segment's index; a new segment is begun when it is full.",
	},
	{
		Name: "segment.jitter.ms", Kind: Long, Default: "0", check: integer(64, 0, maxLong), Allowed: "0 or more",
		Synonyms: []Synonym{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", hour}},
		Doc:      "segment.ms is shortened by a random time below this, drawn anew for each segment when it is begun, so that not all are closed at once.",
	},
	{
		Name: "segment.ms", Kind: Long, Default: "604800000", check: integer(64, 1, maxLong), Allowed: "1 or more",
		Synonyms: []Synonym{{"log.roll.ms", 1}, {"log.roll.hours", hour}},
		Doc:      "The age at which a new segment is begun even if it is not full. The next append begins it: a partition that nobody writes to keeps its active segment until all of it is past retention.ms.",
	},
	{
		Name: "unclean.leader.election.enable", Kind: Boolean, Default: "false", check: boolean,
		Synonyms: []Synonym{{"unclean.leader.election.enable", 1}},
		Doc:      "Accepted for Kafka's sake; with one replica there is no election.",
	},
}
