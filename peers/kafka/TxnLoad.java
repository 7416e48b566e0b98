// Transactions by Apache Kafka's own producer, as a script on standard input says, one line a command; the answers are "ok", or "ok OFFSET" for send.
//   begin ID                       begins a transaction of transactional.id ID
//   send ID TOPIC PARTITION N SIZE sends N records of SIZE bytes, one batch each, and answers with the offset of the first
//   commit ID | abort ID
// ID "-" sends outside of any transaction.
// run: kafka-peer.sh run TxnLoad.java BOOTSTRAP
import java.io.*;
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TxnLoad {
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] a) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println("ok " + run(a[0], line.split(" ")));
            System.out.flush();
        }
        producers.values().forEach(KafkaProducer::close);
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        return producers.computeIfAbsent(id, i -> {
            Map<String, Object> p = new HashMap<>();
            p.put("bootstrap.servers", bootstrap);
            p.put("transaction.timeout.ms", 600_000);
            if (!i.equals("-")) p.put("transactional.id", i);
            KafkaProducer<byte[], byte[]> k = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
            if (!i.equals("-")) k.initTransactions();
            return k;
        });
    }

    static String run(String bootstrap, String[] f) throws Exception {
        KafkaProducer<byte[], byte[]> p = producer(bootstrap, f[1]);
        switch (f[0]) {
            case "begin": p.beginTransaction(); return "";
            case "commit": p.commitTransaction(); return "";
            case "abort": p.abortTransaction(); return "";
            case "send": break;
            default: throw new IllegalArgumentException(f[0]);
        }
        int n = Integer.parseInt(f[4]);
        byte[] pad = new byte[Integer.parseInt(f[5])];
        Arrays.fill(pad, (byte) '.');
        long first = -1;
        for (int i = 0; i < n; i++) {
            byte[] value = pad.clone(), mark = (f[1] + " " + i + " ").getBytes();
            System.arraycopy(mark, 0, value, 0, Math.min(mark.length, value.length));
            long at = p.send(new ProducerRecord<>(f[2], Integer.valueOf(f[3]), f[1].getBytes(), value)).get().offset();
            if (first < 0) first = at;
        }
        return Long.toString(first);
    }
}
