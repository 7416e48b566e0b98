// Reads one remote segment through LocalTieredStorage, as a broker would, and prints SHA-256 and size of each of its files.
// run: java -cp 'dist/VERSION/lib/*:dist/rsm-VERSION/*:dist/rsm-VERSION/classes' ReadStore.java DIR TOPIC TOPIC_ID PARTITION SEGMENT_ID BASE SIZE
import java.io.InputStream;
import java.security.MessageDigest;
import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

public class ReadStore {
    public static void main(String[] a) throws Exception {
        LocalTieredStorage store = new LocalTieredStorage();
        store.configure(Map.of("dir", a[0], "broker.id", 1));
        TopicIdPartition tp = new TopicIdPartition(Uuid.fromString(a[2]), new TopicPartition(a[1], Integer.parseInt(a[3])));
        long base = Long.parseLong(a[5]);
        RemoteLogSegmentMetadata m = new RemoteLogSegmentMetadata(new RemoteLogSegmentId(tp, Uuid.fromString(a[4])), base, base + 99, 0L, 1, 0L,
            Integer.parseInt(a[6]), Map.of(0, base));
        print("log", store.fetchLogSegment(m, 0));
        print("from 10", store.fetchLogSegment(m, 10));
        for (IndexType t : IndexType.values()) print(t.name(), store.fetchIndex(m, t));
        store.deleteLogSegmentData(m);
        try {
            store.fetchLogSegment(m, 0).close();
            System.out.println("still there");
        } catch (RemoteStorageException e) {
            System.out.println("deleted");
        }
        store.close();
    }

    static void print(String name, InputStream in) throws Exception {
        byte[] b;
        try (in) { b = in.readAllBytes(); }
        System.out.println(name + " " + b.length + " " + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(b)));
    }
}
