package gateway

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// decodedHere are the keys whose requests are decoded, with the versions that are.
func decodedHere() (all []kmsg.Request) {
	for _, key := range []int16{keyFetch, keyShareFetch, keyApiVersions, keySaslHandshake, keySaslAuthenticate} {
		for v := range kmsg.RequestForKey(key).MaxVersion() + 1 {
			r := kmsg.RequestForKey(key)
			r.SetVersion(v)
			all = append(all, r)
		}
	}
	return all
}

// withElements puts so many elements into a request, in all places, and some tags.
func withElements(r kmsg.Request, n int) {
	tag := func(t *kmsg.Tags) {
		if r.IsFlexible() {
			t.Set(900, []byte("unknown"))
		}
	}
	switch r := r.(type) {
	case *kmsg.FetchRequest:
		r.Rack = "somewhere"
		tag(&r.UnknownTags)
		for range n {
			t := kmsg.NewFetchRequestTopic()
			t.Topic = "past"
			tag(&t.UnknownTags)
			f := kmsg.NewFetchRequestForgottenTopic()
			f.Topic = "forgotten"
			tag(&f.UnknownTags)
			for i := range n {
				p := kmsg.NewFetchRequestTopicPartition()
				p.Partition = int32(i)
				tag(&p.UnknownTags)
				t.Partitions = append(t.Partitions, p)
				f.Partitions = append(f.Partitions, int32(i))
			}
			r.Topics, r.ForgottenTopics = append(r.Topics, t), append(r.ForgottenTopics, f)
		}
	case *kmsg.ShareFetchRequest:
		r.GroupID, r.MemberID = kmsg.StringPtr("group"), kmsg.StringPtr("member")
		tag(&r.UnknownTags)
		for range n {
			t := kmsg.NewShareFetchRequestTopic()
			tag(&t.UnknownTags)
			f := kmsg.NewShareFetchRequestForgottenTopicsData()
			for range n {
				p := kmsg.NewShareFetchRequestTopicPartition()
				b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
				b.AcknowledgeTypes = make([]int8, n)
				tag(&b.UnknownTags)
				p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
				t.Partitions, f.Partitions = append(t.Partitions, p), append(f.Partitions, 7)
			}
			r.Topics, r.ForgottenTopicsData = append(r.Topics, t), append(r.ForgottenTopicsData, f)
		}
	case *kmsg.ApiVersionsRequest:
		r.ClientSoftwareName, r.ClientSoftwareVersion = "name", "version"
		tag(&r.UnknownTags)
	case *kmsg.SASLHandshakeRequest:
		r.Mechanism = "PLAIN"
	case *kmsg.SASLAuthenticateRequest:
		r.SASLAuthBytes = []byte("token")
		tag(&r.UnknownTags)
	}
}

func headOf(r kmsg.Request, body []byte) wire.RequestHeader {
	return wire.RequestHeader{Key: r.Key(), Version: r.GetVersion(), Body: body}
}

// What kmsg writes passes to its last byte, in every version, and what is cut off does not.
func TestElementsOfRequests(t *testing.T) {
	for _, r := range decodedHere() {
		for _, n := range []int{0, 1, 3} {
			withElements(r, n)
			body := r.AppendTo(nil)
			if err := checkElements(headOf(r, body)); err != nil {
				t.Errorf("%d elements: %v", n, err)
			}
			for cut := range len(body) {
				if err := checkElements(headOf(r, body[:cut])); !errors.Is(err, wire.ErrMalformed) {
					t.Errorf("%s version %d, %d bytes of %d: %v", kmsg.NameForKey(r.Key()), r.GetVersion(), cut, len(body), err)
				}
			}
		}
	}
}

// FuzzElements: whatever passes makes kmsg allocate no more than a few hundred bytes for each element and byte.
func FuzzElements(f *testing.F) {
	for _, r := range decodedHere() {
		withElements(r, 2)
		f.Add(r.Key(), r.GetVersion(), r.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		r := kmsg.RequestForKey(key)
		if r == nil || version < 0 || version > r.MaxVersion() {
			return
		}
		r.SetVersion(version)
		req := headOf(r, body)
		if checkElements(req) != nil {
			return
		}
		_, _ = decode(req)
	})
}

// hostile is a frame of a request that has, or says that it has, as many topics or tags as its bytes could be.
func hostile(r kmsg.Request, size int, where string) []byte {
	body := r.AppendTo(nil)
	zeroes := make([]byte, size)
	switch where {
	case "topics":
		before := 17 // what stands before them, up to version 6
		if r.GetVersion() >= 7 {
			before += 8
		}
		n := size/2 - 8 // as many as kmsg believes
		if r.IsFlexible() {
			body = append(kbin.AppendUvarint(body[:before:before], uint32(n)), zeroes...)
		} else {
			body = append(kbin.AppendInt32(body[:before:before], int32(n)), zeroes...)
		}
	case "tags":
		body = kbin.AppendUvarint(body[:len(body)-1], uint32(size/2))
		for i := range size / 3 {
			body = append(body, byte(i)|0x80, byte(i>>7)&0x7f, 0)
		}
	}
	frame := wire.AppendRequest(nil, r, 4711, nil)
	frame = append(frame[:len(frame)-len(r.AppendTo(nil))], body...)
	n := len(frame) - 4
	frame[0], frame[1], frame[2], frame[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return frame
}

// A client that has said nothing of itself yet cannot make the gateway take much more memory than it sends.
func TestHostileRequestsTakeLittleMemory(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	passing := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1})
	reading := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1, History: &History{
		Resolver: &allLocal{learnt: make(map[remotestorage.TopicIDPartition]resolve.Learnt)}, Read: remote.Options{Budget: remote.NewBudget(64 << 20)}}})
	for name, g := range map[string]*Gateway{"passing": passing, "reading": reading} {
		t.Run(name, func(t *testing.T) { hostileRequests(t, g) })
	}
}

func hostileRequests(t *testing.T, g *Gateway) {
	const size = 8 << 20
	fetch := func(version int16) kmsg.Request {
		r := kmsg.NewPtrFetchRequest()
		r.Version = version
		return r
	}
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.Version = 3
	auth := kmsg.NewPtrSASLAuthenticateRequest()
	auth.Version = 2
	for name, frame := range map[string][]byte{
		"topics": hostile(fetch(12), size, "topics"), "tags of a fetch": hostile(fetch(13), size, "tags"), "tags of ApiVersions": hostile(versions, size, "tags"), "tags of SaslAuthenticate": hostile(auth, size, "tags"),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			nc, err := net.Dial("tcp", g.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := nc.Write(frame); err != nil {
				t.Fatal(err)
			}
			if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, nc) // a response, or the end: what comes of it is not the matter
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 6*size {
				t.Errorf("%d MiB for %d MiB", took>>20, size>>20)
			}
		})
	}
}

// At random: what passes is decoded as before, and what is decoded without passing has too many elements.
func TestElementsAreBounded(t *testing.T) {
	r := kmsg.NewPtrFetchRequest()
	r.Version = 13
	topic := kmsg.NewFetchRequestTopic()
	for range maxElements - 1 {
		topic.Partitions = append(topic.Partitions, kmsg.NewFetchRequestTopicPartition())
	}
	r.Topics = append(r.Topics, topic)
	if err := checkElements(headOf(r, r.AppendTo(nil))); err != nil {
		t.Error(err)
	}
	r.Topics = append(r.Topics, kmsg.NewFetchRequestTopic())
	if err := checkElements(headOf(r, r.AppendTo(nil))); !errors.Is(err, wire.ErrMalformed) {
		t.Error("one too many:", err)
	}
	for range 200 {
		r := decodedHere()[rand.IntN(len(decodedHere()))]
		withElements(r, rand.IntN(5))
		if _, err := decode(headOf(r, r.AppendTo(nil))); err != nil {
			t.Error(fmt.Errorf("%d: %w", r.Key(), err))
		}
	}
}
