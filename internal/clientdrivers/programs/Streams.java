import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/**
 * A Kafka Streams application with state, exactly once: Streams ADDR APPLICATION STATE_DIR PROTOCOL, where PROTOCOL is classic or streams. It says "running" on its standard output once it is, and
 * closes when its standard input ends.
 *
 * From orders (customer -> "number city") and payments (customer -> "number"), both partitioned by customer:
 *   counts    city -> how many orders so far, by way of a repartition topic
 *   minutes   customer@minute -> how many orders so far, windowed
 *   joined    customer -> "order|payment" for each pair that lies within five seconds of each other
 * Nothing is cached, so that every change is a record; nothing is late.
 */
public class Streams {
    public static void main(String[] a) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", a[0]);
        p.put("application.id", a[1]);
        p.put("state.dir", a[2]);
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("num.stream.threads", "2");
        p.put("statestore.cache.max.bytes", "0");
        p.put("default.key.serde", Serdes.StringSerde.class);
        p.put("default.value.serde", Serdes.StringSerde.class);
        p.put("auto.offset.reset", "earliest");
        p.put("group.protocol", a[3]);
        if (a[3].equals("classic")) { // of streams groups the broker says how long
            p.put("session.timeout.ms", "6000"); // who was killed is missed soon
            p.put("heartbeat.interval.ms", "500");
        }
        p.put("fetch.max.wait.ms", "100");
        p.put("repartition.purge.interval.ms", "1000"); // its DeleteRecords come during the test

        StreamsBuilder b = new StreamsBuilder();
        KStream<String, String> orders = b.stream("orders"), payments = b.stream("payments");
        orders.selectKey((customer, order) -> order.split(" ")[1]).groupByKey(Grouped.as("by-city")).count(Materialized.as("cities"))
            .toStream().mapValues(Object::toString).to("counts");
        orders.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1))).count(Materialized.as("per-minute"))
            .toStream((w, n) -> w.key() + "@" + w.window().start()).mapValues(Object::toString).to("minutes");
        orders.join(payments, (order, payment) -> order + "|" + payment, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), Duration.ofDays(1)),
            StreamJoined.as("paid")).to("joined");

        KafkaStreams streams = new KafkaStreams(b.build(), p);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) System.out.println("running");
            if (now == KafkaStreams.State.ERROR) System.out.println("error");
        });
        streams.start();
        while (System.in.read() >= 0) ;
        if (!streams.close(Duration.ofSeconds(60))) throw new IllegalStateException("not closed in a minute");
    }
}
