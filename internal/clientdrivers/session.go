package clientdrivers

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// Session is what a client is to do.
type Session struct {
	Addr   string // host:port, several with commas between
	Login  clustertest.Login
	CAFile string // of the authority that the client trusts, for TLS

	Produce string   // a topic whose partition 0 is written, or ""
	Values  []string // of the records; the i-th has the key "k" and i
	// Transactional produces in one transaction, before which another one with the same records is aborted.
	Transactional bool

	Read      string // a topic of one partition, read from its start, or ""
	Group     string
	First, N  int // records that are read before the client goes away once, and altogether
	Committed bool
	NewGroups bool // the group protocol of KIP-848
}

// Record is what the client saw. Keys and values are base64; "" is null or empty, which some clients do not tell apart.
type Record struct {
	Offset int64  `json:"offset"`
	Key    string `json:"key"`
	Value  string `json:"value"`
}

// NewRecord makes one of bytes.
func NewRecord(offset int64, key, value []byte) Record {
	return Record{offset, base64.StdEncoding.EncodeToString(key), base64.StdEncoding.EncodeToString(value)}
}

// Result of a session: what was read before the client went away, and after.
type Result struct {
	First []Record `json:"first"`
	Rest  []Record `json:"rest"`
}

// All that was read.
func (r Result) All() []Record { return slices.Concat(r.First, r.Rest) }

// Driver is a client.
type Driver struct {
	Name string
	// Mechanisms of SASL that it knows.
	Mechanisms                            []clustertest.Mechanism
	CanTransactions, CanNewGroups, CanTLS bool
	// Run does the session. An error or a session that takes too long fails the test.
	Run func(*testing.T, Session) Result
}

// Can tells whether the client knows how to do the session.
func (d Driver) Can(s Session) bool {
	switch {
	case s.Login.Mechanism != "" && !slices.Contains(d.Mechanisms, s.Login.Mechanism),
		s.Login.UsesTLS() && !d.CanTLS, s.Transactional && !d.CanTransactions, s.NewGroups && !d.CanNewGroups:
		return false
	}
	return true
}

// Drivers are all clients. Those in Java run in a JVM that java gives.
func Drivers(java func(*testing.T) *JVM) []Driver {
	all, scram := clustertest.Mechanisms, clustertest.Mechanisms[:3]
	// Debian's kcat has librdkafka 2.0.2, whose SCRAM Apache Kafka 4.4 refuses; confluent's librdkafka is a newer one.
	plain := []clustertest.Mechanism{clustertest.Plain, clustertest.OAuthBearer}
	return []Driver{
		{"kgo", all, true, true, true, runKgo},
		{"sarama", all, false, false, true, runSarama},
		{"kafka-go", all, false, false, true, runKafkaGo},
		{"java", all, true, true, true, func(t *testing.T, s Session) Result { return java(t).Session(t, s) }},
		{"java-console", all, false, false, true, func(t *testing.T, s Session) Result { return java(t).console(t, s) }},
		{"kcat", plain, false, false, true, runKcat},
		{"confluent", all, true, true, true, python("confluent")},
		{"aiokafka", all, true, false, true, python("aiokafka")},
		{"kafka-python", scram, false, false, true, python("kafka-python")},
		{"kafkajs", all, true, false, true, runKafkaJS},
	}
}

func (s Session) key(i int) string { return fmt.Sprintf("k%d", i) }

// portable is the session as the programs in other languages read it.
func (s Session) portable(t *testing.T) map[string]any {
	t.Helper()
	user := s.Login.User
	if user == "" {
		user = clustertest.Admin
	}
	p := map[string]any{
		"addr": s.Addr, "protocol": s.Login.Wire(), "mechanism": s.Login.Mechanism, "user": user, "password": clustertest.Password(user), "token": "", "ca": s.CAFile,
		"cert": s.Login.CertFile, "key": s.Login.KeyFile,
		"produce": s.Produce, "values": s.Values, "transactional": s.Transactional, "transactional_id": s.Group + "-txn",
		"read": s.Read, "group": s.Group, "first": s.First, "n": s.N, "isolation": isolation(s.Committed), "new_groups": s.NewGroups,
		"java": s.Login.JavaProperties(s.CAFile),
	}
	if s.Login.Mechanism == clustertest.OAuthBearer {
		p["token"] = s.Login.BearerToken()
	}
	return p
}

func isolation(committed bool) string {
	if committed {
		return "read_committed"
	}
	return "read_uncommitted"
}
