package tooltest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTools runs every step on both brokers. REWIND_TOOLS_LONG=1 is for all of them, otherwise a sample is taken.
func TestTools(t *testing.T) {
	if testing.Short() {
		t.Skip("an Apache Kafka is started")
	}
	kafka, ours := startKafka(t), startOurs(t)
	for _, s := range []*side{kafka, ours} {
		s.prepare(t)
	}
	j := startJVM(t)
	long := os.Getenv("REWIND_TOOLS_LONG") != ""
	for _, s := range append(steps(), dumpSteps()...) {
		if !long && !s.sample {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if s.needs != 0 && !ours.keys[s.needs] {
				t.Skipf("our broker does not serve key %d yet", s.needs)
			}
			began := time.Now()
			want := j.at(&s, kafka)
			took := time.Since(began)
			got := j.at(&s, ours)
			// An Apache Kafka that is busy answers before it has come to know of what it did for the step before.
			for try := 0; got != want && s.mayRunAgain() && try < 5; try++ {
				time.Sleep(time.Duration(try) * time.Second)
				want, got = j.at(&s, kafka), j.at(&s, ours)
			}
			t.Logf("%v and %v", took.Round(time.Millisecond), (time.Since(began) - took).Round(time.Millisecond))
			if !strings.Contains(want, s.expect) {
				t.Errorf("Apache Kafka's answer does not hold %q:\n%s", s.expect, want)
			}
			for _, d := range differences() {
				if d.step != s.name {
					continue
				}
				changed := d.kafka.ReplaceAllString(want, d.ours)
				if changed == want {
					t.Errorf("a listed difference that does not occur: %+v", d)
				}
				want = changed
			}
			if got != want {
				t.Errorf("%s %s\nwanted:\n%s\nours:\n%s", s.class, s.args, want, got)
			}
		})
	}
	t.Run("records of Apache Kafka's groups", func(t *testing.T) { readRecords(t, kafka) })
}

var looks = regexp.MustCompile(`(^| )(--describe|--list|describe|list|find-hanging|cluster-id|list-endpoints)( |$)`)

// mayRunAgain: it only looks, and is not to differ.
func (s *step) mayRunAgain() bool {
	listed := slices.ContainsFunc(differences(), func(d difference) bool { return d.step == s.name })
	return !listed && (s.class == offsetsTool || looks.MatchString(s.args))
}

// at runs a step on a side and gives what it printed, without what is another one each time.
func (j *jvm) at(s *step, at *side) string {
	j.t.Helper()
	args := s.arguments(at.addr)
	for i := range args {
		args[i] = at.fill.Replace(args[i])
	}
	r := j.run(s.class, s.in, args...)
	if r.hangs {
		return "hangs"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "status %d\n", r.status)
	b.WriteString(normal(s, r.out))
	if errors := exceptions(r.errors); errors != "" {
		b.WriteString(errors)
	}
	return b.String()
}

var (
	exception = regexp.MustCompile(`\b[A-Z]\w*(?:Exception|Error)\b`)
	masks     = []struct {
		of *regexp.Regexp
		by string
	}{
		{memberID, "${1}MEMBER"},
		{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
		{regexp.MustCompile(`127\.0\.0\.1(\s+)\d+\b`), "ADDRESS"},
		{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
		{regexp.MustCompile(`\b(TopicId|Cluster ID): \S+`), "$1: ID"},
		{regexp.MustCompile(`/tmp/[^ ,")\]]+/`), "DIR/"},
		{regexp.MustCompile(`\b1[78]\d{11}\b`), "TIME"}, // a time of now
		{regexp.MustCompile(`20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.:]\d+Z?`), "TIME"},
		// What the other side's settings are.
		{regexp.MustCompile(`^ *(min\.insync\.replicas|file\.delete\.delay\.ms)=\d+ sensitive=.*`), ""},
		{regexp.MustCompile(`\b(min\.insync\.replicas|file\.delete\.delay\.ms)=\d+,?`), ""},
		{regexp.MustCompile(`.*__remote_log_metadata.*`), ""}, // made with the first tiered topic, or at the start
		{regexp.MustCompile(`(Error while executing [\w ]+ command : ).*`), "$1TEXT"},
		{regexp.MustCompile(`((?:\bEpoch|had an error): ).*$`), "${1}..."},
		{regexp.MustCompile(`"DIR/\w+"`), `"DIR"`},
		{regexp.MustCompile(`\b(rack: )?rack-1\b`), "${1}null"},
		{regexp.MustCompile(`\s+$`), ""},
		{regexp.MustCompile(`[ \t]+`), " "},
	}
)

// normal takes out what two runs have reason to print differently. Texts of errors are ours; which errors there are is compared.
func normal(s *step, out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		for _, m := range masks {
			line = m.of.ReplaceAllString(line, m.by)
		}
		if found := exceptions(line); found != "" {
			line = strings.TrimSpace(found)
		}
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "at ") || line == "" {
			continue
		}
		kept = append(kept, line)
	}
	kept = mask(s, kept)
	if s.sorted {
		slices.Sort(kept)
	}
	if kept == nil {
		return ""
	}
	return strings.Join(kept, "\n") + "\n"
}

func exceptions(text string) string {
	var names []string
	for _, n := range exception.FindAllString(text, -1) {
		if !slices.Contains(names, n) && n != "ExecutionException" {
			names = append(names, n)
		}
	}
	if names == nil {
		return ""
	}
	return strings.Join(names, ", ") + "\n"
}

// mask is for what single tools print.
func mask(s *step, lines []string) []string {
	switch s.class {
	case topicsTool: // configurations are in no order
		lines = slices.DeleteFunc(lines, func(l string) bool {
			return strings.Contains(s.args, "with-overrides") && strings.HasSuffix(l, "Configs:")
		})
		for i, l := range lines {
			if before, list, ok := strings.Cut(l, "Configs: "); ok {
				configs := slices.DeleteFunc(strings.Split(list, ","), func(c string) bool { return strings.TrimSpace(c) == "" })
				slices.Sort(configs)
				lines[i] = before + "Configs: " + strings.Join(configs, ",")
			}
		}
	case configsTool: // all of them: which broker's configuration is behind each is TestTopicDefaultsAreApacheKafkas' matter
		if strings.Contains(s.args, "--all ") {
			for i, l := range lines {
				lines[i], _, _ = strings.Cut(l, " synonyms=")
			}
		}
	case shareGroupsTool:
		maskShareGroups(lines)
	case verifiableConsumer:
		return maskReads(lines)
	case verifiableProducer:
		return maskWrites(lines)
	case latencyTool:
		return maskFigures(lines)
	case copierTool:
		return maskCopies(lines)
	case quorumTool:
		return maskQuorum(lines)
	case verifiableShareTool:
		return maskVerifiable(lines)
	case perfTool, readPerfTool:
		return maskPerf(lines, 4)
	case sharePerfTool:
		return maskPerf(lines, 5)
	case txnTool: // producer ids, durations
		for i, l := range lines {
			l = regexp.MustCompile(`\b\d{4,}\b`).ReplaceAllString(l, "N")
			l = regexp.MustCompile(`^(tx-\S+ \d+|\d+ tx-\S+) \d+ `).ReplaceAllString(l, "$1 ID ")
			lines[i] = regexp.MustCompile(`^\d+ (-?\d+ -?\d+ -?\d+ TIME)`).ReplaceAllString(l, "ID $1")
		}
	case dumpTool: // ids, and what hangs on them
		if strings.Contains(s.args, "-decoder") {
			return states(lines)
		}
		for i, l := range lines {
			lines[i] = regexp.MustCompile(`(producerId|crc): \d+`).ReplaceAllString(l, "$1: N")
		}
	case versionsTool: // what only one of them serves is TestAsApacheKafka's and docs/differences.md's matter
		return slices.DeleteFunc(lines, func(l string) bool {
			return !strings.Contains(l, "Fetch(1)") && !strings.Contains(l, "Produce(0)") && !strings.Contains(l, "JoinGroup(11)")
		})
	case logDirsTool: // the partitions are in no order
		var parts []string
		for _, l := range lines {
			l = regexp.MustCompile(`"(totalBytes|usableBytes|size)":\d+`).ReplaceAllString(l, `"$1":N`)
			for _, part := range regexp.MustCompile(`\{"partition[^}]*\}`).FindAllString(l, -1) {
				parts = append(parts, part)
			}
			parts = append(parts, regexp.MustCompile(`\{"partition[^}]*\},?`).ReplaceAllString(l, ""))
		}
		return parts
	}
	return lines
}

// states are what coordinators have written down: each key with each value, however often and wherever.
func states(lines []string) []string {
	var all []string
	for _, l := range lines {
		_, record, ok := strings.Cut(l, " key: ")
		if !ok {
			continue
		}
		record = regexp.MustCompile(`"topicId":"[^"]+"`).ReplaceAllString(record, `"topicId":"ID"`)
		record = regexp.MustCompile(`\b\d{6,}\b`).ReplaceAllString(record, "N")
		record = regexp.MustCompile(`"(producerId|previousProducerId|nextProducerId)":-?\d+`).ReplaceAllString(record, `"$1":N`)
		record, says := groupState(transactionState(record))
		if says && !slices.Contains(all, record) && !strings.Contains(record, "verifiable") && !strings.Contains(record, "perf") {
			all = append(all, record)
		}
	}
	slices.Sort(all)
	return all
}
