import java.io.*;
import java.util.*;
import org.apache.kafka.coordinator.group.api.streams.assignor.*;
import org.apache.kafka.coordinator.group.streams.assignor.*;

/**
 * Apache Kafka's sticky task assignor: reads one case a line, and writes what it assigns.
 *
 * A case is "standbys|subtopology:tasks:stateful,...|member;process;active;standby;offsets|...", tasks are "subtopology_partition" with spaces between them, offsets
 * "subtopology_partition=offset". An answer is "member;active;standby|..." in the order of the members.
 */
public class Assign {
    public static void main(String[] a) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) System.out.println(answer(line.split("\\|", -1)));
    }

    static String answer(String[] parts) {
        TreeMap<String, Integer> tasks = new TreeMap<>();
        Set<String> stateful = new HashSet<>();
        for (String s : parts[1].split(",")) {
            String[] f = s.split(":");
            tasks.put(f[0], Integer.parseInt(f[1]));
            if (f[2].equals("true")) stateful.add(f[0]);
        }
        Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();
        List<String> order = new ArrayList<>();
        for (int i = 2; i < parts.length; i++) {
            String[] f = parts[i].split(";", -1);
            order.add(f[0]);
            Map<String, Map<Integer, Long>> offsets = new HashMap<>();
            for (String o : f[4].split(" "))
                if (!o.isEmpty()) {
                    String[] kv = o.split("[_=]");
                    offsets.computeIfAbsent(kv[0], k -> new HashMap<>()).put(Integer.parseInt(kv[1]), Long.parseLong(kv[2]));
                }
            members.put(f[0], new MemberMetadataAndStateImpl(Optional.empty(), Optional.empty(), f[1], Map.of(), parse(f[2]), parse(f[3]), Map.of(), offsets, Map.of()));
        }
        TopologyDescriber topology = new TopologyDescriber() {
            public List<String> subtopologies() { return List.copyOf(tasks.keySet()); }
            public int maxNumInputPartitions(String s) { return tasks.get(s); }
            public boolean isStateful(String s) { return stateful.contains(s); }
        };
        GroupAssignment result = new StickyTaskAssignor().assign(new GroupSpecImpl(members, new AssignmentConfigsImpl(Integer.parseInt(parts[0]), List.of())), topology);
        List<String> out = new ArrayList<>();
        for (String id : order) {
            MemberAssignment m = result.members().get(id);
            out.add(id + ";" + text(m.activeTasks()) + ";" + text(m.standbyTasks()));
        }
        return String.join("|", out);
    }

    static Map<String, Set<Integer>> parse(String s) {
        Map<String, Set<Integer>> out = new HashMap<>();
        for (String t : s.split(" "))
            if (!t.isEmpty()) out.computeIfAbsent(t.split("_")[0], k -> new HashSet<>()).add(Integer.parseInt(t.split("_")[1]));
        return out;
    }

    static String text(Map<String, Set<Integer>> tasks) {
        List<String> out = new ArrayList<>();
        for (String s : new TreeSet<>(tasks.keySet())) for (int p : new TreeSet<>(tasks.get(s))) out.add(s + "_" + p);
        return String.join(" ", out);
    }
}
