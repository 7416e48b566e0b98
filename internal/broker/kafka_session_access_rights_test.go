package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// rights are what alice has in one round.
type rights struct {
	name  string
	rules []acl.Binding
}

func may(r acl.ResourceType, name string, ops ...acl.Operation) (all []acl.Binding) {
	for _, op := range ops {
		all = append(all, acl.Binding{Resource: r, Name: name, Pattern: acl.Literal, Principal: "User:alice", Host: "*", Operation: op, Permission: acl.Allow})
	}
	return all
}

func changed(list []acl.Binding, change func(*acl.Binding)) []acl.Binding {
	for i := range list {
		change(&list[i])
	}
	return list
}

func prefixed(b *acl.Binding) { b.Pattern = acl.Prefixed }
func denied(b *acl.Binding)   { b.Permission = acl.Deny }

func rounds() []rights {
	all := slices.Concat(may(acl.Topic, "*", acl.All), may(acl.Group, "*", acl.All), may(acl.Cluster, acl.ClusterName, acl.All), may(acl.TransactionalID, "*", acl.All))
	return []rights{
		{"nothing", nil},
		{"describe a topic", may(acl.Topic, topicA, acl.Describe)},
		{"read a topic and a group", append(may(acl.Topic, topicA, acl.Read), may(acl.Group, groupG, acl.Read)...)},
		{"write a topic", may(acl.Topic, topicA, acl.Write)},
		{"read all topics by prefix but one denied by prefix", append(changed(may(acl.Topic, "access-", acl.Read), prefixed), changed(changed(may(acl.Topic, topicB, acl.Read), prefixed), denied)...)},
		{"read everything but what is denied by name", slices.Concat(may(acl.Topic, "*", acl.Read), may(acl.Group, "*", acl.Read), changed(may(acl.Topic, topicA, acl.Read), denied), changed(may(acl.Group, groupG, acl.All), denied))},
		{"create topics by name", may(acl.Topic, "access-new", acl.Create)},
		{"delete topics by prefix", changed(may(acl.Topic, "access-", acl.Delete), prefixed)},
		{"alter topics by prefix", changed(may(acl.Topic, "access-", acl.Alter), prefixed)},
		{"describe configs of a topic", may(acl.Topic, topicA, acl.DescribeConfigs)},
		{"alter configs of a topic and a group", append(may(acl.Topic, topicA, acl.AlterConfigs), may(acl.Group, groupG, acl.AlterConfigs)...)},
		{"describe the cluster", may(acl.Cluster, acl.ClusterName, acl.Describe)},
		{"alter the cluster", may(acl.Cluster, acl.ClusterName, acl.Alter)},
		{"create and delete on the cluster", may(acl.Cluster, acl.ClusterName, acl.Create, acl.Delete)},
		{"idempotent write", may(acl.Cluster, acl.ClusterName, acl.IdempotentWrite)},
		{"configs of the cluster", may(acl.Cluster, acl.ClusterName, acl.AlterConfigs)},
		{"cluster action", may(acl.Cluster, acl.ClusterName, acl.ClusterAction)},
		{"write a transactional id", append(may(acl.TransactionalID, "access-tx", acl.Write), may(acl.Topic, topicA, acl.Write)...)},
		{"write a transactional id, read a group", append(may(acl.TransactionalID, "access-tx", acl.Write), may(acl.Group, groupG, acl.Read)...)},
		{"describe transactional ids by prefix", changed(may(acl.TransactionalID, "access-", acl.Describe), prefixed)},
		{"describe a group", may(acl.Group, groupG, acl.Describe)},
		{"delete a group", append(may(acl.Group, groupG, acl.Delete), may(acl.Topic, topicA, acl.Read)...)},
		{"everything from elsewhere", changed(slices.Clone(all), func(b *acl.Binding) { b.Host = "10.1.2.3" })},
		{"everything from here, for anybody", changed(slices.Clone(all), func(b *acl.Binding) { b.Host, b.Principal = host, "User:*" })},
		{"everything but to describe topics", append(slices.Clone(all), changed(may(acl.Topic, "*", acl.Describe), denied)...)},
		{"everything", all},
	}
}

// comingIn is what goes wrong before and while a client says who it is, with the texts that it reads.
func (s *accessSession) comingIn() {
	s.t.Helper()
	shake := func(mechanism string) {
		s.t.Helper()
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.SetVersion(1)
		req.Mechanism = mechanism
		s.note("handshake for %s: %s", mechanism, code(s.ask(req).(*kmsg.SASLHandshakeResponse).ErrorCode))
	}
	show := func(what string, token []byte) []byte {
		s.t.Helper()
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SetVersion(2)
		req.SASLAuthBytes = token
		resp := s.ask(req).(*kmsg.SASLAuthenticateResponse)
		s.note("%s: %s %q, %d ms", what, code(resp.ErrorCode), deref(resp.ErrorMessage), resp.SessionLifetimeMillis)
		return resp.SASLAuthBytes
	}
	gone := func() {
		s.t.Helper()
		s.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err := s.conn.Read(make([]byte, 1))
		s.note("closed: %t", errors.Is(err, io.EOF))
	}
	shake("PLAIN") // where there is no SASL
	show("a token where there is no SASL", []byte("x"))
	s.dialSASL()
	shake("KERBEROS")
	gone()
	for _, token := range []string{"\x00alice\x00wrong", "\x00nobody\x00x", "bob\x00alice\x00" + clustertest.Password("alice"), "\x00alice\x00", "\x00\x00x", "x", "\x00a\x00b\x00c\x00d"} {
		s.dialSASL()
		shake("PLAIN")
		show(fmt.Sprintf("%q for PLAIN", token), []byte(token))
		gone()
	}
	s.dialSASL()
	shake("PLAIN")
	list := kmsg.NewPtrListGroupsRequest()
	list.SetVersion(4)
	if _, err := s.conn.Write(wire.AppendRequest(nil, list, 1, nil)); err != nil {
		s.t.Fatal(err)
	}
	answer := "none"
	if _, err := wire.ReadFrame(s.conn, 1000, nil); err == nil {
		answer = "an error"
	}
	s.note("another request in the middle, the answer: %s", answer)
	gone()
	s.login()
	show("a token after authentication", []byte("x"))
	shake("PLAIN")
}

func (s *accessSession) dialSASL() {
	s.t.Helper()
	c, err := net.Dial("tcp", s.sasl)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	s.conn = &rawConn{Conn: c}
}

func (s *accessSession) login() {
	s.t.Helper()
	s.dialSASL()
	shake := kmsg.NewPtrSASLHandshakeRequest()
	shake.SetVersion(1)
	shake.Mechanism = "PLAIN"
	s.ask(shake)
	auth := kmsg.NewPtrSASLAuthenticateRequest()
	auth.SetVersion(2)
	auth.SASLAuthBytes = []byte("\x00alice\x00" + clustertest.Password("alice"))
	if resp := s.ask(auth).(*kmsg.SASLAuthenticateResponse); resp.ErrorCode != 0 {
		s.t.Fatalf("alice does not come in: %d", resp.ErrorCode)
	}
}

// grant adds rules, and waits until the broker knows them.
func (s *accessSession) grant(rules []acl.Binding) {
	s.t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	req.SetVersion(3)
	for _, r := range rules {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceType(r.Resource), r.Name, kmsg.ACLResourcePatternType(r.Pattern)
		c.Principal, c.Host, c.Operation, c.PermissionType = r.Principal, r.Host, kmsg.ACLOperation(r.Operation), kmsg.ACLPermissionType(r.Permission)
		req.Creations = append(req.Creations, c)
	}
	for _, r := range s.ask(req).(*kmsg.CreateACLsResponse).Results {
		if r.ErrorCode != 0 {
			s.t.Fatalf("a rule: %d", r.ErrorCode)
		}
	}
	await(s.t, "the rules", func() bool { return s.ruleCount() == len(rules) })
}

func (s *accessSession) ruleCount() (n int) {
	for _, r := range s.ask(describeACLs()).(*kmsg.DescribeACLsResponse).Resources {
		n += len(r.ACLs)
	}
	return n
}

func describeACLs() *kmsg.DescribeACLsRequest {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.SetVersion(3)
	req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 1, 1, 1
	return req
}

func (s *accessSession) revoke() {
	s.t.Helper()
	s.ask(deleteACLs(nil))
	await(s.t, "the rules to go", func() bool { return s.ruleCount() == 0 })
}

func deleteACLs(name *string) *kmsg.DeleteACLsRequest {
	req := kmsg.NewPtrDeleteACLsRequest()
	req.SetVersion(3)
	f := kmsg.NewDeleteACLsRequestFilter()
	f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType, f.ResourceName = 1, 1, 1, 1, name
	req.Filters = append(req.Filters, f)
	return req
}
