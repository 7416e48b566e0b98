package broker

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Each request that is served has its row in docs/security.md, and is asked of Apache Kafka and of us by TestAccessSessionAsApacheKafka: whoever adds one says what it
// asks for.
func TestEveryRequestSaysWhatItAsksFor(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| request | operation and resource |")
	if !ok {
		t.Fatal("docs/security.md has no table of requests")
	}
	rows := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Za-z, ]+) \|`).FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			if rows[name] {
				t.Errorf("%s has two rows", name)
			}
			rows[name] = true
		}
	}
	for key := range (&Broker{groups: &groupService{}}).apiTable() {
		name := kmsg.NameForKey(key)
		if !rows[name] {
			t.Errorf("%s has no row", name)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s is not served", name)
	}
}
