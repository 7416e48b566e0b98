import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of groups, each a consumer with a thread of its own, until they are told to leave or the process is killed. Commands and what the members say are lines of
 * fields separated by tabs; members.go has both.
 */
public class Members {
    static final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Member> members = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("ready");
        for (String line; (line = commands.readLine()) != null; ) {
            String[] f = line.split("\t", -1);
            if (f[0].equals("join")) {
                JsonNode how = JSON.readTree(f[2]);
                Member m = how.get("share").asBoolean() ? new Sharer(f[1], how) : new Reader(f[1], how);
                members.put(f[1], m);
                new Thread(m, f[1]).start();
            } else if (f[0].equals("leave")) {
                members.remove(f[1]).leave();
            } else {
                throw new IllegalArgumentException(f[0]);
            }
        }
        System.exit(0);
    }

    abstract static class Member implements Runnable {
        final String name;
        final JsonNode how;
        final Map<String, Object> config = new HashMap<>();
        volatile boolean leaving;

        Member(String name, JsonNode how) {
            this.name = name;
            this.how = how;
            config.put("bootstrap.servers", how.get("addr").asText());
            config.put("group.id", how.get("group").asText());
            config.put("client.id", name);
            config.put("fetch.max.wait.ms", 100);
            config.put("reconnect.backoff.max.ms", 200);
            config.put("metadata.max.age.ms", 1000);
            config.put("max.poll.records", how.get("batch").asInt());
        }

        void say(Object... fields) {
            String line = name + Arrays.stream(fields).map(f -> "\t" + f).collect(Collectors.joining());
            synchronized (out) { out.println(line); }
        }

        void read(ConsumerRecord<String, String> r) {
            say("read", r.topic(), r.partition(), r.offset(), shown(r.value()), r.deliveryCount().map(Short::intValue).orElse(0));
        }

        static String shown(String value) {
            String text = value.substring(0, Math.min(80, value.length()));
            return text.replaceAll("[^ -~]", "?");
        }

        String text(String field) { return how.get(field).asText(); }

        List<String> topics() {
            List<String> all = new ArrayList<>();
            how.get("topics").forEach(t -> all.add(t.asText()));
            return all;
        }

        void leave() { leaving = true; }

        public void run() {
            try {
                work();
                say("left");
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                say("failed", trace.toString().replace('\n', '|').replace('\t', ' '));
            }
        }

        abstract void work() throws Exception;
    }

    static class Reader extends Member implements ConsumerRebalanceListener {
        Reader(String name, JsonNode how) {
            super(name, how);
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", false);
            config.put("group.protocol", text("protocol"));
            if (!text("instance").isEmpty()) config.put("group.instance.id", text("instance"));
            if (text("protocol").equals("consumer")) {
                if (!text("assignor").isEmpty()) config.put("group.remote.assignor", text("assignor"));
                return;
            }
            config.put("session.timeout.ms", 6000);
            config.put("heartbeat.interval.ms", 300);
            config.put("partition.assignment.strategy", text("assignor").equals("range") ? RangeAssignor.class.getName() : CooperativeStickyAssignor.class.getName());
        }

        void work() {
            try (Consumer<String, String> c = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                if (text("pattern").isEmpty()) c.subscribe(topics(), this);
                else c.subscribe(new SubscriptionPattern(text("pattern")), this);
                while (!leaving) {
                    ConsumerRecords<String, String> records = c.poll(Duration.ofMillis(100));
                    records.forEach(this::read);
                    if (records.isEmpty()) continue;
                    try {
                        c.commitSync();
                        say("committed");
                    } catch (Exception e) { // somebody else will read them again
                        say("uncommitted", e);
                    }
                }
            }
        }

        static String list(Collection<TopicPartition> all) { return all.stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(",")); }

        public void onPartitionsAssigned(Collection<TopicPartition> all) { say("assigned", list(all)); }

        public void onPartitionsRevoked(Collection<TopicPartition> all) { say("revoked", list(all)); }

        public void onPartitionsLost(Collection<TopicPartition> all) { say("lost", list(all)); }
    }

    /** What becomes of a record its value says: reject, release (when it first comes), renew (before it is accepted); all others are accepted. */
    static class Sharer extends Member {
        Sharer(String name, JsonNode how) {
            super(name, how);
            config.put("share.acknowledgement.mode", "explicit");
        }

        AcknowledgeType fate(ConsumerRecord<String, String> r) {
            if (r.value().startsWith("reject")) return AcknowledgeType.REJECT;
            if (r.value().startsWith("release") && r.deliveryCount().get() == 1) return AcknowledgeType.RELEASE;
            return AcknowledgeType.ACCEPT;
        }

        void work() throws Exception {
            try (KafkaShareConsumer<String, String> c = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                c.subscribe(topics());
                while (!leaving) {
                    ConsumerRecords<String, String> records = c.poll(Duration.ofMillis(100));
                    records.forEach(this::read);
                    if (how.get("hold").asBoolean() && !records.isEmpty()) {
                        say("holds", records.count());
                        while (!leaving) Thread.sleep(20);
                        break;
                    }
                    records.forEach(r -> c.acknowledge(r, fate(r)));
                    if (records.isEmpty()) continue;
                    Set<TopicPartition> failed = new HashSet<>();
                    c.commitSync().forEach((tp, e) -> { if (e.isPresent()) failed.add(new TopicPartition(tp.topic(), tp.partition())); });
                    for (ConsumerRecord<String, String> r : records) {
                        boolean sure = !failed.contains(new TopicPartition(r.topic(), r.partition()));
                        say(sure ? "acknowledged" : "unsure", r.topic(), r.partition(), r.offset(), fate(r).name(), r.deliveryCount().get());
                    }
                }
            }
        }
    }
}
