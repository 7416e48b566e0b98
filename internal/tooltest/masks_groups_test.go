package tooltest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	memberID   = regexp.MustCompile(`[\w+/-]{22}==|("memberId":")[^"]+`)
	clientID   = regexp.MustCompile(`("clientId":"consumer-[\w-]+-)\d+`)
	leaderID   = regexp.MustCompile(`("leader":"consumer-[\w-]+-)\d+(-UUID")`)
	ownGroup   = regexp.MustCompile(`"console-consumer-\d+"`) // a tool that was given none makes one up
	topicsHash = regexp.MustCompile(`"metadataHash":-?[\dN]+`)
	shareTopic = regexp.MustCompile(`\{"topicId":"ID","topicName":"\w+"[^}]*\}(,\{"topicId":"ID","topicName":"\w+"[^}]*\})+`)
	chance     = regexp.MustCompile(`"groupId":"(pattern|release)-crew"`) // some of what these groups have comes more than once, in batches as they come
	// A streams group whose internal topics are being made may, or may not, be assigned nothing meanwhile.
	streamsUnassigned = regexp.MustCompile(`"type":"20".*"assignmentEpoch":2,|"type":"2[12]".*"activeTasks":\[\]`)
	streamsBefore     = regexp.MustCompile(`("type":"22".*"previousMemberEpoch":)\d+`)
	shareError        = regexp.MustCompile(`Error: .*`)
)

// groupState takes out of a record of the groups' coordinator what is another one each time. It is false for one that says nothing.
func groupState(record string) (string, bool) {
	record = memberID.ReplaceAllString(record, "${1}MEMBER")
	record = clientID.ReplaceAllString(record, "${1}N")
	record = leaderID.ReplaceAllString(record, "${1}N$2")
	record = ownGroup.ReplaceAllString(record, `"console-consumer-N"`)
	record = topicsHash.ReplaceAllString(record, `"metadataHash":N`)            // docs/differences.md
	record = shareTopic.ReplaceAllStringFunc(record, func(list string) string { // topics are in no order
		all := strings.SplitAfter(list, "}")
		for i := range all {
			all[i] = strings.TrimPrefix(all[i], ",")
		}
		slices.Sort(all)
		return strings.Join(all, ",")
	})
	record = streamsBefore.ReplaceAllString(record, "${1}N")
	if chance.MatchString(record) || streamsUnassigned.MatchString(record) {
		return "", false
	}
	// Ours says that nothing is left of a share group before it takes it away.
	return record, !strings.Contains(record, `"initializingTopics":[],"initializedTopics":[],"deletingTopics":[]`)
}

// maskShareGroups: texts of errors are ours.
func maskShareGroups(lines []string) {
	for i, l := range lines {
		lines[i] = shareError.ReplaceAllString(l, "Error: TEXT")
	}
}

// maskVerifiable: which records came together is chance; how often each came, and what became of it, is not.
func maskVerifiable(lines []string) (out []string) {
	counts := map[string]int{}
	for _, l := range lines {
		var e struct {
			Name       string
			Success    *bool
			Partitions []struct {
				Topic     string
				Partition int
				Offsets   []int
			}
			AckTypeCounts map[string]int
		}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(l, "TIME", "0")), &e); err != nil || e.Partitions == nil {
			out = append(out, l)
			continue
		}
		if e.Success != nil && !*e.Success {
			out = append(out, l)
		}
		for _, p := range e.Partitions {
			for _, o := range p.Offsets {
				counts[fmt.Sprintf("%s %s-%d %d", e.Name, p.Topic, p.Partition, o)]++
			}
		}
		for how, n := range e.AckTypeCounts {
			counts[how] += n
		}
	}
	for what, n := range counts {
		out = append(out, fmt.Sprintf("%s: %d", what, n))
	}
	return out
}
