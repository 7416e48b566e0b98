package tooltest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	figure       = regexp.MustCompile(`\d+(\.\d+)?`)
	copiedAt     = regexp.MustCompile(`"time":"[^"]*"`)
	quorumValues = regexp.MustCompile(`^(ClusterId|LeaderEpoch|HighWatermark): .*`)
	quorumVoter  = regexp.MustCompile(`"directoryId": "[^"]*", "endpoints": \["\w+://`)
	throughput   = regexp.MustCompile(`"avg_throughput":[^,}]+`)
)

// maskReads: which records came together is chance; how many there were is not, nor how far it was committed.
func maskReads(lines []string) (out []string) {
	counts, committed := map[string]int{}, map[string]int{}
	for _, l := range lines {
		var e struct {
			Name       string
			Partitions []struct {
				Topic            string
				Partition, Count int
			}
			Offsets []struct {
				Topic             string
				Partition, Offset int
			}
		}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(l, "TIME", "0")), &e); err != nil {
			out = append(out, l)
			continue
		}
		switch {
		case e.Name == "records_consumed":
			for _, p := range e.Partitions {
				counts[fmt.Sprintf("%s %s-%d", e.Name, p.Topic, p.Partition)] += p.Count
			}
		case e.Name == "offsets_committed" && strings.Contains(l, `"success":true`):
			for _, o := range e.Offsets {
				what := fmt.Sprintf("%s %s-%d", e.Name, o.Topic, o.Partition)
				committed[what] = max(committed[what], o.Offset)
			}
		default:
			out = append(out, l)
		}
	}
	for _, m := range []map[string]int{counts, committed} {
		for what, n := range m {
			out = append(out, fmt.Sprintf("%s: %d", what, n))
		}
	}
	return out
}

var (
	txnTopics = regexp.MustCompile(`"transactionPartitions":\[(.*?\]\})\]`)
	txnOne    = regexp.MustCompile(`("transactionalId":"copier".*"transactionStatus":"Ongoing".*"transactionPartitions":)\[\{"topic":"[^"]+","partitionIds":\[\d+\]\}\]`)
)

// transactionState: a transaction's topics are in no order, and of those whose records and offsets are sent at the same time any may be the first.
func transactionState(record string) string {
	record = txnOne.ReplaceAllString(record, `$1["one of them"]`)
	return txnTopics.ReplaceAllStringFunc(record, func(list string) string {
		topics := strings.SplitAfter(strings.TrimSuffix(strings.TrimPrefix(list, `"transactionPartitions":[`), "]"), "]}")
		for i := range topics {
			topics[i] = strings.TrimPrefix(topics[i], ",")
		}
		slices.Sort(topics)
		return `"transactionPartitions":[` + strings.Trim(strings.Join(topics, ","), ",") + "]"
	})
}

// maskFigures: how long it took.
func maskFigures(lines []string) []string {
	for i, l := range lines {
		lines[i] = figure.ReplaceAllString(l, "N")
	}
	return lines
}

// maskPerf keeps how many records there were: what comes first of those that were sent, and one column of those that were read.
func maskPerf(lines []string, column int) []string {
	for i, l := range lines {
		if sent, rest, ok := strings.Cut(l, " records sent"); ok {
			lines[i] = sent + " records sent" + figure.ReplaceAllString(rest, "N")
			continue
		}
		columns := strings.Split(l, ", ")
		for c := range columns {
			if c != column {
				columns[c] = figure.ReplaceAllString(columns[c], "N")
			}
		}
		lines[i] = strings.Join(columns, ", ")
	}
	return lines
}

func maskWrites(lines []string) []string {
	for i, l := range lines {
		lines[i] = throughput.ReplaceAllString(l, `"avg_throughput":N`)
	}
	return lines
}

func maskCopies(lines []string) []string {
	for i, l := range lines {
		lines[i] = copiedAt.ReplaceAllString(l, `"time":TIME`)
	}
	return lines
}

// maskQuorum: where the log of metadata ends, which ours does not have, its listener, and ids (docs/differences.md).
func maskQuorum(lines []string) []string {
	for i, l := range lines {
		l = quorumValues.ReplaceAllString(l, "$1: ...")
		l = quorumVoter.ReplaceAllString(l, `"directoryId": "ID", "endpoints": ["LISTENER://`)
		if f := strings.Fields(l); len(f) > 2 && f[0] == "1" { // node, directory, end, lag, and times
			l = "1 ... " + f[len(f)-1]
		}
		lines[i] = l
	}
	return lines
}
