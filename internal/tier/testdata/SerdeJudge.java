// Reads records of __remote_log_metadata from a file, one value in hex a line, and prints what Apache Kafka's own serde makes of each, and the bytes that it
// would have written. run: kafka-peer.sh run SerdeJudge.java FILE
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;

public class SerdeJudge {
    public static void main(String[] a) throws Exception {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        RemoteLogMetadataTopicPartitioner partitioner = new RemoteLogMetadataTopicPartitioner(50);
        for (String line : Files.readAllLines(Path.of(a[0]))) {
            RemoteLogMetadata m = serde.deserialize(HexFormat.of().parseHex(line));
            System.out.println("JUDGE|" + describe(m) + "|" + partitioner.metadataPartition(m.topicIdPartition())
                + "|" + HexFormat.of().formatHex(serde.serialize(m)));
        }
    }

    static String describe(RemoteLogMetadata m) {
        if (m instanceof RemoteLogSegmentMetadata s)
            return String.join("|", "segment", id(s.remoteLogSegmentId()), "" + s.startOffset(), "" + s.endOffset(), "" + s.brokerId(), "" + s.maxTimestampMs(),
                "" + s.eventTimestampMs(), s.segmentLeaderEpochs().entrySet().stream().map(e -> e.getKey() + ":" + e.getValue()).collect(Collectors.joining(",")),
                "" + s.segmentSizeInBytes(), custom(s.customMetadata()), s.state().name(), "" + s.isTxnIdxEmpty());
        if (m instanceof RemoteLogSegmentMetadataUpdate u)
            return String.join("|", "update", id(u.remoteLogSegmentId()), "" + u.brokerId(), "" + u.eventTimestampMs(), custom(u.customMetadata()), u.state().name());
        if (m instanceof RemotePartitionDeleteMetadata d)
            return String.join("|", "partition", tip(d.topicIdPartition()), "" + d.brokerId(), "" + d.eventTimestampMs(), d.state().name());
        return "unknown " + m;
    }

    static String id(RemoteLogSegmentId i) { return tip(i.topicIdPartition()) + "|" + i.id(); }
    static String tip(TopicIdPartition t) { return t.topic() + "|" + t.topicId() + "|" + t.partition(); }
    static String custom(Optional<RemoteLogSegmentMetadata.CustomMetadata> c) { return c.map(x -> HexFormat.of().formatHex(x.value())).orElse("none"); }
}
