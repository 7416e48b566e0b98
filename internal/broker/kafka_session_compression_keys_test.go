package broker

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// The part of TestCompressionSessionAsApacheKafka that is about the keys.

// compressionConfigs: the values that the keys take, and what is said of those that they do not.
func (s *peerSession) compressionConfigs() {
	s.create("config", 1)
	for _, tc := range []struct{ key, value string }{
		{"compression.type", "gzip"}, {"compression.type", "none"}, {"compression.type", "GZIP"}, {"compression.type", ""}, {"compression.type", "brotli"},
		{"compression.gzip.level", "9"}, {"compression.gzip.level", "10"}, {"compression.gzip.level", "0"}, {"compression.gzip.level", "-1"}, {"compression.gzip.level", "-2"}, {"compression.gzip.level", "x"}, {"compression.gzip.level", ""},
		{"compression.lz4.level", "1"}, {"compression.lz4.level", "17"}, {"compression.lz4.level", "18"}, {"compression.lz4.level", "0"}, {"compression.lz4.level", "1.5"},
		{"compression.zstd.level", "-131072"}, {"compression.zstd.level", "22"}, {"compression.zstd.level", "0"}, {"compression.zstd.level", "23"}, {"compression.zstd.level", "-131073"}, {"compression.zstd.level", "99999999999"},
		{"max.decompressed.message.bytes", "2147483639"}, {"max.decompressed.message.bytes", "2147483640"}, {"max.decompressed.message.bytes", "0"}, {"max.decompressed.message.bytes", "-1"}, {"max.decompressed.message.bytes", "1"}, {"max.decompressed.message.bytes", "1k"},
	} {
		for _, kind := range []kmsg.ConfigResourceType{ofTopic, ofBroker} {
			name := s.prefix + "config"
			if kind == ofBroker {
				name = ""
			}
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.SetVersion(1)
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = kind, name
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value = tc.key, &tc.value
			r.Configs = append(r.Configs, c)
			req.Resources = append(req.Resources, r)
			got := s.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
			what := map[kmsg.ConfigResourceType]string{ofTopic: "topic", ofBroker: "brokers"}[kind]
			s.note("%s, %s=%s: %s %q", what, tc.key, tc.value, code(got.ErrorCode), deref(got.ErrorMessage))
		}
	}
	s.describeCompression("topic", ofTopic, s.prefix+"config")
}

// defaultsOfCompression: what the brokers say holds for topics that say nothing.
func (s *peerSession) defaultsOfCompression() {
	s.create("defaulted", 1)
	large := payloadOf(kept{key: []byte("k"), value: make([]byte, 200)})
	small := payloadOf(kept{key: []byte("k")})
	set := func(op kmsg.IncrementalAlterConfigOp, pairs ...string) {
		s.alterBrokers(op, pairs...)
		await(s.t, "the defaults to be known", func() bool {
			req := describeCompressionRequest(ofTopic, s.prefix+"defaulted")
			req.SetVersion(4)
			for _, c := range s.ask(req).(*kmsg.DescribeConfigsResponse).Resources[0].Configs {
				if c.Name == pairs[0] && deref(c.Value) == pairs[1] {
					return true
				}
			}
			return false
		})
	}
	send := func(when string) {
		for _, payload := range [][]byte{large, small} {
			s.produceAppended(fmt.Sprintf("%d bytes %s", len(payload), when), 9, -1, "defaulted", squeezed(1, 1, payload, func(h *batch.Header) { h.MaxTimestamp = h.BaseTimestamp }))
		}
	}
	send("as ever")
	set(0, "compression.type", "zstd", "compression.zstd.level", "7", "max.decompressed.message.bytes", "100")
	s.describeCompression("with defaults", ofTopic, s.prefix+"defaulted")
	send("with defaults")
	set(1, "compression.type", "producer", "compression.gzip.level", "", "compression.lz4.level", "", "compression.zstd.level", "", "max.decompressed.message.bytes", "")
	send("at last")
	s.describeCompression("at last", ofTopic, s.prefix+"defaulted")
	s.describeCompression("at last", ofTopic, s.prefix+"config")
	s.describeCompression("at last", ofBroker, "")
	s.describeCompression("at last", ofBroker, "1")
	s.stored("defaulted")
}

func (s *peerSession) alterBrokers(op kmsg.IncrementalAlterConfigOp, pairs ...string) {
	s.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType = ofBroker
	for i := 0; i < len(pairs); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = pairs[i], op, &pairs[i+1]
		if op == 1 {
			c.Value = nil
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	if got := s.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		s.t.Fatalf("altering the brokers: %s", deref(got.ErrorMessage))
	}
}

func describeCompressionRequest(kind kmsg.ConfigResourceType, name string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	keys := []string{"compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "max.decompressed.message.bytes"}
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	return req
}

func (s *peerSession) describeCompression(when string, kind kmsg.ConfigResourceType, name string) {
	s.step(fmt.Sprintf("describe %q, %s", name, when), 4, describeCompressionRequest(kind, name))
	last := len(s.lines) - 1 // what is altered for all brokers and for one are the same to us
	s.lines[last] = strings.ReplaceAll(s.lines[last], "DYNAMIC_DEFAULT_BROKER_CONFIG", "DYNAMIC_BROKER_CONFIG")
}
