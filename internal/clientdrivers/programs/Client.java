import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * The Java client and Apache Kafka's own tools in one JVM that lives as long as the tests. A command is a line of fields separated by tabs, and
 * so is its answer: ok or error, then a text.
 *
 * produce ADDR TOPIC CODEC FILE         each line of FILE becomes a record (see record_test.go for lines)
 * consume ADDR ISOLATION LIMIT FILE TOPIC...   all partitions from the start to the end, in lines, LIMIT bytes a fetch of a partition
 * group   ADDR GROUP N FILE TOPIC...    N records as a member of GROUP, whose offsets are committed, in lines
 * session JSON, share JSON            what a session is: see session.go; the answer is its result in JSON
 * tool    CLASS IN OUT ARG...           a main class with its standard input and output (IN may be empty)
 */
public class Client {
    /** A tool that would end the JVM. Some catch it themselves and exit again: the first status counts. */
    static class Exited extends Error {
        Exited(int status) { super("status " + status); }
    }

    static Integer status; // of the tool that runs

    static void exit(int code) {
        if (status == null) status = code;
        throw new Exited(status);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("ok\tready");
        for (String line; (line = commands.readLine()) != null; ) {
            String answer;
            try {
                answer = "ok\t" + run(line.split("\t", -1));
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                answer = "error\t" + trace.toString().replace('\n', '|').replace('\t', ' ');
            }
            answers.println(answer);
            answers.flush();
        }
    }

    static String run(String[] a) throws Exception {
        switch (a[0]) {
            case "produce": return produce(a[1], a[2], a[3], a[4]);
            case "consume": return consume(a[1], a[2], Integer.parseInt(a[3]), a[4], Arrays.asList(a).subList(5, a.length));
            case "group": return group(a[1], a[2], Integer.parseInt(a[3]), a[4], Arrays.asList(a).subList(5, a.length));
            case "transact": return transact(a[1], a[2], a[3], a[4], Integer.parseInt(a[5]));
            case "session": return session(JSON.readTree(a[1]));
            case "share": return share(JSON.readTree(a[1]));
            case "tool": return tool(a[1], a[2], a[3], Arrays.copyOfRange(a, 4, a.length));
            default: throw new IllegalArgumentException(a[0]);
        }
    }

    static String produce(String addr, String topic, String codec, String file) throws Exception {
        Map<String, Object> p = new HashMap<>();
        p.put("bootstrap.servers", addr);
        p.put("compression.type", codec);
        p.put("batch.size", 2000);
        p.put("linger.ms", 20);
        p.put("max.in.flight.requests.per.connection", 5);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line : Files.readAllLines(Path.of(file))) {
                String[] f = line.split(" ");
                List<Header> headers = new ArrayList<>();
                if (!f[6].equals("none"))
                    for (String h : f[6].split(",")) {
                        String[] kv = h.split("=");
                        headers.add(new RecordHeader(kv[0], decode(kv[1])));
                    }
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.valueOf(f[1]), Long.valueOf(f[3]), decode(f[4]), decode(f[5]), headers)));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> s : sent) s.get();
        return Integer.toString(sent.size());
    }

    static Consumer<byte[], byte[]> consumer(String addr, Map<String, Object> more) {
        Map<String, Object> p = new HashMap<>(more);
        p.put("bootstrap.servers", addr);
        p.put("auto.offset.reset", "earliest");
        p.put("fetch.max.wait.ms", 100);
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static String consume(String addr, String isolation, int limit, String file, List<String> topics) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(90).toNanos();
        long n = 0;
        Map<String, Object> p = Map.of("isolation.level", isolation, "enable.auto.commit", false, "max.partition.fetch.bytes", limit);
        try (Consumer<byte[], byte[]> c = consumer(addr, p); PrintStream out = out(file)) {
            List<TopicPartition> all = new ArrayList<>();
            for (String t : topics) c.partitionsFor(t).forEach(i -> all.add(new TopicPartition(t, i.partition())));
            c.assign(all);
            c.seekToBeginning(all);
            Map<TopicPartition, Long> ends = c.endOffsets(all);
            while (!all.isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    print(out, r);
                    n++;
                }
                all.removeIf(tp -> c.position(tp) >= ends.get(tp));
                if (System.nanoTime() > end) throw new IllegalStateException("not at the end of " + all + " after " + n + " records");
            }
        }
        return Long.toString(n);
    }

    static String group(String addr, String group, int max, String file, List<String> topics) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        int n = 0;
        Map<String, Object> p = Map.of("group.id", group, "enable.auto.commit", false, "max.poll.records", 1);
        try (Consumer<byte[], byte[]> c = consumer(addr, p); PrintStream out = out(file)) {
            c.subscribe(topics);
            while (n < max) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    print(out, r);
                    n++;
                }
                if (System.nanoTime() > end) throw new IllegalStateException(n + " records in time");
            }
            c.commitSync();
        }
        return Integer.toString(n);
    }

    // n records go from one topic to another in transactions, offsets included; every third transaction is aborted, and done again.
    static String transact(String addr, String id, String from, String to, int n) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(90).toNanos();
        int done = 0, round = 0;
        Map<String, Object> p = Map.of("bootstrap.servers", addr, "transactional.id", id);
        Map<String, Object> c = Map.of("group.id", id, "enable.auto.commit", false, "max.poll.records", 9, "isolation.level", "read_committed");
        try (Consumer<byte[], byte[]> in = consumer(addr, c); Producer<byte[], byte[]> out = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            out.initTransactions();
            in.subscribe(List.of(from));
            while (done < n) {
                if (System.nanoTime() > end) throw new IllegalStateException(done + " records in time");
                ConsumerRecords<byte[], byte[]> records = in.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                out.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> r : records) {
                    out.send(new ProducerRecord<>(to, r.key(), r.value()));
                    next.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                }
                out.sendOffsetsToTransaction(next, in.groupMetadata());
                if (round++ % 3 == 1) {
                    out.flush();
                    out.abortTransaction();
                    Map<TopicPartition, OffsetAndMetadata> committed = in.committed(in.assignment());
                    for (TopicPartition tp : in.assignment()) in.seek(tp, committed.get(tp) == null ? 0 : committed.get(tp).offset());
                    continue;
                }
                out.commitTransaction();
                done += records.count();
            }
        }
        return Integer.toString(done);
    }

    static final ObjectMapper JSON = new ObjectMapper();

    static Map<String, Object> properties(JsonNode s) {
        Map<String, Object> p = new HashMap<>();
        p.put("bootstrap.servers", s.get("addr").asText());
        s.get("java").fields().forEachRemaining(e -> p.put(e.getKey(), e.getValue().asText()));
        return p;
    }

    static String session(JsonNode s) throws Exception {
        if (!s.get("produce").asText().isEmpty()) produce(s);
        ArrayNode first = JSON.createArrayNode(), rest = JSON.createArrayNode();
        if (!s.get("read").asText().isEmpty()) {
            read(s, s.get("first").asInt(), first);
            read(s, s.get("n").asInt() - s.get("first").asInt(), rest);
        }
        return JSON.writeValueAsString(Map.of("first", first, "rest", rest));
    }

    static void produce(JsonNode s) throws Exception {
        Map<String, Object> p = properties(s);
        boolean transactional = s.get("transactional").asBoolean();
        if (transactional) p.put("transactional.id", s.get("transactional_id").asText());
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
                send(producer, s);
                producer.abortTransaction();
                producer.beginTransaction();
            }
            send(producer, s);
            if (transactional) producer.commitTransaction();
        }
    }

    static void send(Producer<byte[], byte[]> producer, JsonNode s) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode v : s.get("values"))
            sent.add(producer.send(new ProducerRecord<>(s.get("produce").asText(), 0, ("k" + sent.size()).getBytes(), v.asText().getBytes())));
        producer.flush();
        for (Future<RecordMetadata> f : sent) f.get();
    }

    static void add(ArrayNode to, ConsumerRecord<byte[], byte[]> r) {
        to.addObject().put("offset", r.offset()).put("key", base64(r.key())).put("value", base64(r.value()));
    }

    static String base64(byte[] b) { return b == null ? "" : Base64.getEncoder().encodeToString(b); }

    static void read(JsonNode s, int n, ArrayNode to) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(55).toNanos();
        Map<String, Object> p = properties(s);
        p.put("auto.offset.reset", "earliest");
        p.put("fetch.max.wait.ms", 200);
        p.put("group.id", s.get("group").asText());
        p.put("enable.auto.commit", false);
        p.put("max.poll.records", 1);
        p.put("isolation.level", s.get("isolation").asText());
        if (s.get("new_groups").asBoolean()) p.put("group.protocol", "consumer");
        try (Consumer<byte[], byte[]> c = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            c.subscribe(List.of(s.get("read").asText()));
            while (to.size() < n) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) add(to, r);
                if (System.nanoTime() > end) throw new IllegalStateException(to.size() + " of " + n + " records in time");
            }
            c.commitSync();
        }
    }

    static String share(JsonNode s) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(55).toNanos();
        Map<String, Object> p = properties(s);
        p.put("group.id", s.get("group").asText());
        ArrayNode all = JSON.createArrayNode();
        try (KafkaShareConsumer<byte[], byte[]> c = new KafkaShareConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            c.subscribe(List.of(s.get("read").asText()));
            while (all.size() < s.get("n").asInt()) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) add(all, r);
                if (System.nanoTime() > end) throw new IllegalStateException(all.size() + " records in time");
            }
            c.commitSync();
        }
        return JSON.writeValueAsString(Map.of("first", all, "rest", JSON.createArrayNode()));
    }

    static String tool(String name, String in, String out, String[] args) throws Exception {
        InputStream oldIn = System.in;
        PrintStream oldOut = System.out;
        status = null;
        try (InputStream i = in.isEmpty() ? InputStream.nullInputStream() : new FileInputStream(in); PrintStream o = out(out)) {
            System.setIn(i);
            System.setOut(o);
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (java.lang.reflect.InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited && status == 0)) throw new RuntimeException(name + " printed: " + Files.readString(Path.of(out)), e);
        } finally {
            System.setIn(oldIn);
            System.setOut(oldOut);
        }
        return "";
    }

    static PrintStream out(String file) throws IOException {
        return new PrintStream(new BufferedOutputStream(new FileOutputStream(file)), false, StandardCharsets.UTF_8);
    }

    static void print(PrintStream out, ConsumerRecord<byte[], byte[]> r) {
        StringBuilder headers = new StringBuilder();
        for (Header h : r.headers()) headers.append(headers.isEmpty() ? "" : ",").append(h.key()).append('=').append(encode(h.value()));
        out.println(String.join(" ", r.topic(), Integer.toString(r.partition()), Long.toString(r.offset()), Long.toString(r.timestamp()), encode(r.key()),
            encode(r.value()), headers.isEmpty() ? "none" : headers));
    }

    static String encode(byte[] b) { return b == null ? "null" : "x" + HexFormat.of().formatHex(b); }

    static byte[] decode(String s) { return s.equals("null") ? null : HexFormat.of().parseHex(s.substring(1)); }
}
