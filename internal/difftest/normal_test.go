package difftest

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// unsaid are fields that two brokers have reason to fill differently: times, texts, addresses, what is drawn at random.
var unsaid = map[string]bool{
	"Version": true, "UnknownTags": true, "ThrottleMillis": true, "ErrorMessage": true, "Host": true, "Port": true, "ClusterID": true, "Rack": true, "Dir": true,
	"TotalBytes": true, "UsableBytes": true, "Documentation": true, "LogAppendTime": true, "StartTimestamp": true, "SessionLifetimeMillis": true, "TxnStartTimestamp": true, "LastTimestamp": true, "Size": true,
	"ClientHost": true, "FinalizedFeaturesEpoch": true, "StatusDetail": true, "IsCordoned": true,
}

// ofQuorum are fields of DescribeQuorum that tell of a log of metadata, which is not there on one side, and of its listener.
var ofQuorum = map[string]bool{"LeaderEpoch": true, "HighWatermark": true, "LogEndOffset": true, "LastFetchTimestamp": true, "LastCaughtUpTimestamp": true, "Name": true}

// normal writes an answer as lines of a path and a value. Lists are put in order, so paths have no indices.
type normal struct {
	s     *side
	key   int16
	scope string // names that begin with it are the case's
	lines []string
}

func (s *side) lines(a answer, scope string) []string {
	if a.resp == nil {
		return []string{a.how}
	}
	n := &normal{s: s, scope: scope}
	n.key = a.resp.Key()
	n.write("", "", reflect.ValueOf(a.resp).Elem())
	return n.lines
}

func (n *normal) put(path, format string, args ...any) {
	n.lines = append(n.lines, path+"="+fmt.Sprintf(format, args...))
}

func (n *normal) write(path, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			n.put(path, "null")
			return
		}
		n.write(path, name, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i).Name; !unsaid[f] && !(n.key == 55 && ofQuorum[f]) && !(n.key == 75 && f == "NextCursor") && // where a list of all topics ends depends on how many there are
				!(n.key == 0 && (f == "BaseOffset" || f == "LogStartOffset")) { // what was appended before may differ
				n.write(strings.TrimPrefix(path+"."+f, "."), f, v.Field(i))
			}
		}
	case reflect.Array:
		n.put(path, "%s", n.topic(v.Interface().([16]byte)))
	case reflect.Slice:
		n.slice(path, name, v)
	case reflect.String:
		n.put(path, "%s", n.text(v.String()))
	default:
		n.put(path, "%s", number(name, v))
	}
}

func number(name string, v reflect.Value) string {
	if v.CanInt() {
		switch i := v.Int(); {
		case name == "ErrorCode":
			return code(int16(i))
		case name == "ProducerID" && i >= 0, name == "SessionID" && i > 0:
			return "some"
		}
	}
	return fmt.Sprint(v.Interface())
}

var drawn = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (n *normal) text(s string) string {
	s = drawn.ReplaceAllString(s, "UUID")
	if len(s) > 60 {
		s = fmt.Sprintf("%s... of %d bytes", s[:40], len(s))
	}
	return fmt.Sprintf("%q", s)
}

func (n *normal) topic(id [16]byte) string {
	if id == ([16]byte{}) {
		return "none"
	}
	if name, ok := n.s.topics[id]; ok {
		return name
	}
	return "some id"
}

func (n *normal) slice(path, name string, v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if name == "RecordBatches" {
			n.put(path, "%s", batches(v.Bytes()))
		} else {
			n.put(path, "%q", v.Bytes())
		}
		return
	}
	switch {
	case v.IsNil():
		n.put(path, "null")
		return
	case v.Len() == 0:
		n.put(path, "[]")
		return
	}
	var items []string
	for i := range v.Len() {
		if n.foreign(v.Index(i)) {
			continue
		}
		one := &normal{s: n.s, key: n.key, scope: n.scope}
		one.write(path, name, v.Index(i))
		items = append(items, strings.Join(one.lines, "\n"))
	}
	slices.Sort(items)
	for _, item := range items {
		n.lines = append(n.lines, strings.Split(item, "\n")...)
	}
}

// foreign tells of something in a list of everything that the case has nothing to do with.
func (n *normal) foreign(v reflect.Value) bool {
	switch e := v.Interface().(type) {
	case kmsg.ApiVersionsResponseApiKey:
		return !n.s.served(e.ApiKey)
	case kmsg.ListConfigResourcesResponseConfigResource:
		return !strings.HasPrefix(e.Name, n.scope) && !slices.Contains(shared, e.Name) && e.Type == int8(kmsg.ConfigResourceTypeTopic)
	case kmsg.DescribeConfigsResponseResourceConfig, kmsg.CreateTopicsResponseTopicConfig:
		// Configurations that nobody set are TestTopicDefaultsAreApacheKafkas' matter.
		return v.FieldByName("Source").Int() != 1
	}
	if v.Kind() != reflect.Struct {
		return false
	}
	failed := v.FieldByName("ErrorCode")
	if failed.IsValid() && failed.Int() != 0 {
		return false
	}
	for _, f := range []string{"Topic", "Group", "TransactionalID", "User"} {
		name := v.FieldByName(f)
		if name.IsValid() && name.Kind() == reflect.Pointer && !name.IsNil() {
			name = name.Elem()
		}
		if name.IsValid() && name.Kind() == reflect.String && name.String() != "" {
			return !strings.HasPrefix(name.String(), n.scope) && !slices.ContainsFunc(shared, func(s string) bool { return name.String() == s })
		}
	}
	return false
}

// batches tells which batches there are, and how long they are.
func batches(b []byte) string {
	var parts []string
	at, err := batch.Each(b, func(h batch.Header, raw []byte) error {
		parts = append(parts, fmt.Sprintf("%d-%d:%d", h.BaseOffset, h.LastOffset(), len(raw)))
		return nil
	})
	if err != nil {
		parts = append(parts, err.Error())
	}
	if rest := len(b) - at; rest > 0 {
		parts = append(parts, fmt.Sprintf("cut:%d", rest))
	}
	return "[" + strings.Join(parts, " ") + "]"
}
