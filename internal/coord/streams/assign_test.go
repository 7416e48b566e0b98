package streams

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/peers"
)

// With -record-assignments Apache Kafka's own assignor answers the cases anew: testdata/Assign.java, with its jars.
var recordAll = flag.Bool("record-assignments", false, "record what Apache Kafka's task assignor answers")

const assignments = "testdata/assignments_kafka_4.4.0.txt"

// TestTasksAreAssignedAsByApacheKafka: each case, a line, is answered as in the next.
func TestTasksAreAssignedAsByApacheKafka(t *testing.T) {
	if *recordAll {
		recordAssignments(t)
	}
	text, err := os.ReadFile(assignments)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) < 400 {
		t.Fatalf("%d lines", len(lines))
	}
	for i := 0; i+1 < len(lines); i += 2 {
		if got := answerCase(t, lines[i]); got != lines[i+1] {
			t.Fatalf("line %d: %s\nours: %s\nwant: %s", i+1, lines[i], got, lines[i+1])
		}
	}
}

func recordAssignments(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var cases []string
	for range 300 {
		cases = append(cases, drawCase(rnd))
	}
	cmd := exec.Command("java", "-cp", peers.KafkaJars(t), "testdata/Assign.java")
	cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(cases, "\n")), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(answers) != len(cases) {
		t.Fatalf("%d answers to %d cases", len(answers), len(cases))
	}
	var b bytes.Buffer
	for i := range cases {
		fmt.Fprintf(&b, "%s\n%s\n", cases[i], answers[i])
	}
	if err := os.WriteFile(assignments, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func drawCase(rnd *rand.Rand) string {
	var subs []string
	var tasks []Task
	for i := range 1 + rnd.IntN(4) {
		n := 1 + rnd.IntN(7)
		subs = append(subs, fmt.Sprintf("%d:%d:%t", i, n, rnd.IntN(3) > 0))
		for p := range n {
			tasks = append(tasks, Task{strconv.Itoa(i), int32(p)})
		}
	}
	type who struct {
		active, standby, offsets []string
		process                  string
	}
	members := make([]who, 1+rnd.IntN(8))
	for i := range members {
		members[i].process = fmt.Sprintf("process-%d", rnd.IntN(1+rnd.IntN(5)))
	}
	for _, t := range tasks {
		name := fmt.Sprintf("%s_%d", t.Subtopology, t.Partition)
		at := rnd.IntN(len(members))
		if rnd.IntN(4) > 0 {
			members[at].active = append(members[at].active, name)
		}
		for i := range members {
			if i != at && rnd.IntN(4) == 0 {
				members[i].standby = append(members[i].standby, name)
			}
			if rnd.IntN(6) == 0 {
				members[i].offsets = append(members[i].offsets, fmt.Sprintf("%s=%d", name, rnd.IntN(5)))
			}
		}
	}
	parts := []string{strconv.Itoa(rnd.IntN(3)), strings.Join(subs, ",")}
	for _, m := range members {
		id := fmt.Sprintf("%08x-%04x", rnd.Uint32(), rnd.IntN(1<<16))
		parts = append(parts, strings.Join([]string{id, m.process, strings.Join(m.active, " "), strings.Join(m.standby, " "), strings.Join(m.offsets, " ")}, ";"))
	}
	return strings.Join(parts, "|")
}

// caseOf takes a case apart.
func caseOf(t interface{ Fatal(...any) }, line string) *assignment {
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	task := func(s string) Task {
		id, p, _ := strings.Cut(s, "_")
		return Task{id, int32(number(p))}
	}
	parts := strings.Split(line, "|")
	a := &assignment{offsets: map[string]offsets{}, tasks: map[string]int32{}, stateful: map[string]bool{}, standbys: int(number(parts[0]))}
	for _, s := range strings.Split(parts[1], ",") {
		f := strings.Split(s, ":")
		a.tasks[f[0]], a.stateful[f[0]] = int32(number(f[1])), f[2] == "true"
	}
	var ids []string
	for _, p := range parts[2:] {
		f := strings.Split(p, ";")
		m := newMember(f[0])
		m.ProcessID, m.Assigned = f[1], Held{Active: Epochs{}, Standby: Set{}}
		for _, s := range strings.Fields(f[2]) {
			m.Assigned.Active[task(s)] = 1
		}
		for _, s := range strings.Fields(f[3]) {
			m.Assigned.Standby[task(s)] = struct{}{}
		}
		told := offsets{reached: map[Task]int64{}}
		for _, s := range strings.Fields(f[4]) {
			name, n, _ := strings.Cut(s, "=")
			told.reached[task(name)] = number(n)
		}
		a.offsets[m.ID] = told
		a.members = append(a.members, m)
		ids = append(ids, m.ID)
	}
	a.order = assignor.HashOrder(ids)
	return a
}

func answerCase(t interface{ Fatal(...any) }, line string) string {
	a := caseOf(t, line)
	target := assign(a)
	text := func(s Set) string {
		var out []string
		for _, ids := range s.List() {
			for _, p := range ids.Partitions {
				out = append(out, fmt.Sprintf("%s_%d", ids.Subtopology, p))
			}
		}
		return strings.Join(out, " ")
	}
	var out []string
	for _, m := range a.members {
		out = append(out, m.ID+";"+text(target[m.ID].Active)+";"+text(target[m.ID].Standby))
	}
	return strings.Join(out, "|")
}

// TestAssignorKeepsItsPromises: every task is run once, copies are in other processes than the task and each other, as many as asked for where there are processes for
// them, and who runs a task goes on running it unless it has more than its share.
func TestAssignorKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		line := drawCase(rand.New(rand.NewPCG(seed, 0)))
		a := caseOf(rt, line)
		target := assign(a)
		runs := map[Task]string{}
		copies := map[Task][]string{}
		processes := map[string]bool{}
		for _, m := range a.members {
			processes[m.ProcessID] = true
			for task := range target[m.ID].Active {
				if other, twice := runs[task]; twice {
					rt.Fatalf("%v is run in %s and %s: %s", task, other, m.ProcessID, line)
				}
				runs[task] = m.ProcessID
			}
			for task := range target[m.ID].Standby {
				if slices.Contains(copies[task], m.ProcessID) {
					rt.Fatalf("%v has two copies in %s: %s", task, m.ProcessID, line)
				}
				copies[task] = append(copies[task], m.ProcessID)
			}
		}
		total := 0
		for id, n := range a.tasks {
			total += int(n)
			for p := range n {
				task := Task{id, p}
				process, ok := runs[task]
				want := 0
				if a.stateful[id] {
					want = min(a.standbys, len(processes)-1)
				}
				if !ok || slices.Contains(copies[task], process) || len(copies[task]) != want {
					rt.Fatalf("%v is run in %q with copies in %v, want %d: %s", task, process, copies[task], want, line)
				}
			}
		}
		if len(runs) != total {
			rt.Fatalf("%d tasks are run, there are %d: %s", len(runs), total, line)
		}
		// Nobody who had no more than the smallest fair share of tasks loses any.
		for _, m := range a.members {
			if len(m.Assigned.Active) > total/len(a.members) {
				continue
			}
			for task := range m.Assigned.Active {
				if !target[m.ID].Active.has(task) {
					rt.Fatalf("%s loses %v, which it ran: %s", m.ID, task, line)
				}
			}
		}
	})
}
