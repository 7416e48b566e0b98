package broker

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
)

// TestLogLevelIsAltered: the codes are Apache Kafka 4.4.0's, asked for the same of its logger root.
func TestLogLevelIsAltered(t *testing.T) {
	logs, level := new(logLines), new(slog.LevelVar)
	b := startBroker(t, t.TempDir(), func(o *Options) {
		o.Level, o.Logger = level, slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: level}))
	})
	c := b.raw(t)
	alter := func(resource, logger string, op kmsg.IncrementalAlterConfigOp, value *string, validateOnly bool) int16 {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.SetVersion(1)
		kv := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		kv.Name, kv.Op, kv.Value = logger, op, value
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeBrokerLogger, resource, append(r.Configs, kv)
		req.Resources, req.ValidateOnly = append(req.Resources, r), validateOnly
		return c.ask(t, req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode
	}
	const set, remove, add = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend
	debug := kmsg.StringPtr("DEBUG")
	for _, tc := range []struct {
		what, resource, logger string
		op                     kmsg.IncrementalAlterConfigOp
		value                  *string
		want                   int16
	}{
		{"in small letters", "1", "root", set, kmsg.StringPtr("debug"), errInvalidConfig},
		{"nothing", "1", "root", set, kmsg.StringPtr(""), errInvalidConfig},
		{"off", "1", "root", set, kmsg.StringPtr("OFF"), errInvalidConfig},
		{"null", "1", "root", set, nil, errInvalidRequest},
		{"another logger", "1", "no.such", set, debug, errInvalidConfig},
		{"none", "1", "root", remove, nil, errInvalidRequest},
		{"another logger's none", "1", "no.such", remove, nil, errInvalidConfig},
		{"appended", "1", "root", add, debug, errInvalidRequest},
		{"no broker", "", "root", set, debug, errInvalidRequest},
		{"another broker", "9", "root", set, debug, errInvalidRequest},
		{"good", "1", "root", set, debug, errNone},
	} {
		if got := alter(tc.resource, tc.logger, tc.op, tc.value, true); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.what, got, tc.want)
		}
	}
	if level.Level() != slog.LevelInfo {
		t.Errorf("the level is %v after requests that were only to be judged", level.Level())
	}
	for _, name := range []string{"TRACE", "DEBUG", "WARN", "ERROR", "FATAL", "INFO"} {
		if code := alter("1", "root", set, &name, false); code != errNone {
			t.Fatalf("%s: %d", name, code)
		}
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.SetVersion(4)
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBrokerLogger, "1"
		req.Resources = append(req.Resources, r)
		got := c.ask(t, req).(*kmsg.DescribeConfigsResponse).Resources[0].Configs
		if len(got) != 1 || got[0].Name != "root" || got[0].Value == nil || *got[0].Value != name || got[0].Source != kmsg.ConfigSource(config.SourceLogger) {
			t.Errorf("%s: described as %+v", name, got)
		}
	}
	if level.Level() != slog.LevelInfo {
		t.Errorf("the level is %v", level.Level())
	}
}
