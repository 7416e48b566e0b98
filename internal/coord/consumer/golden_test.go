package consumer

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// TestMembersAsApacheKafkaWritesThem: what a member says of itself, in the bytes of Apache Kafka 4.4.0. That it brings nothing of the classic protocol is said by a null;
// where nothing at all is said, Apache Kafka takes it for a member of the classic protocol, one that offers nothing.
func TestMembersAsApacheKafkaWritesThem(t *testing.T) {
	of := func(classic *Classic) *Member {
		m := newMember("m")
		m.InstanceID, m.ClientID, m.ClientHost, m.Topics, m.Rebalance, m.Assignor, m.Classic = "i", "c", "/h", []string{"t"}, 60_000, "range", classic
		return m
	}
	for _, c := range []struct {
		name, value string
		member      *Member
		written     bool // by us, too
	}{
		{"of the consumer protocol", "00000269000263032f68020274010000ea600672616e676501000100", of(nil), true},
		{"of the classic protocol", "00000269000263032f68020274010000ea600672616e67650100110100001770020672616e67650301020000",
			of(&Classic{Session: 6 * time.Second, Protocols: []group.Protocol{{Name: "range", Metadata: []byte{1, 2}}}}), true},
		{"as this broker wrote members of the consumer protocol once", "00000269000263032f68020274010000ea600672616e676500", of(nil), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := hex.DecodeString(c.value)
			if err != nil {
				t.Fatal(err)
			}
			e := memberType.Of("m", c.member).Encode("g")
			if got := hex.EncodeToString(e.Value); (got == c.value) != c.written {
				t.Errorf("written as %s, want %s", got, c.value)
			}
			id, r, err := Parse(e.Key, b)
			if err != nil {
				t.Fatal(err)
			}
			g := newReplayer("g").make()
			r.Replay(g)
			if got := g.Get("m"); id != "g" || !reflect.DeepEqual(got, c.member) {
				t.Errorf("read as %+v, want %+v", got, c.member)
			}
		})
	}
}
