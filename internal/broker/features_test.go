package broker

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func updateFeature(t *testing.T, c *rawConn, name string, level int16, kind int8) int16 {
	t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.SetVersion(1)
	req.TimeoutMillis = 5000
	req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: name, MaxVersionLevel: level, UpgradeType: kind}}
	return c.ask(t, req).(*kmsg.UpdateFeaturesResponse).ErrorCode
}

func levelTold(t *testing.T, c *rawConn, name string) (level int16, epoch int64) {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(4)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
	resp := c.ask(t, req).(*kmsg.ApiVersionsResponse)
	for _, f := range resp.FinalizedFeatures {
		if f.Name == name {
			level = f.MaxVersionLevel
		}
	}
	return level, resp.FinalizedFeaturesEpoch
}

// TestFeaturesAreLowered: a lowered feature is told, switches its keys off, outlives the broker, and comes back.
func TestFeaturesAreLowered(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	c := b.raw(t)
	for _, name := range []string{featureGroup, featureShare, featureStreams, featureTransaction, featureReplicas} {
		if code := updateFeature(t, c, name, 0, upgrade); code != errInvalidUpdateVersion {
			t.Errorf("%s lowered by an upgrade: %d", name, code)
		}
		if code := updateFeature(t, c, name, 0, 2); code != errNone {
			t.Errorf("%s: %d", name, code)
		}
	}
	for key := range gates {
		req := kmsg.RequestForKey(key)
		req.SetVersion(b.apis[key].max)
		if _, served := b.apis[key]; !served {
			t.Fatalf("%s is not served", kmsg.NameForKey(key))
		}
		if got := gatedCode(t, c, req); got != errUnsupportedVersion {
			t.Errorf("%s of a feature at level 0: %d", kmsg.NameForKey(key), got)
		}
	}
	_, epoch := levelTold(t, c, featureGroup)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	c = b.raw(t)
	if level, after := levelTold(t, c, featureGroup); level != 0 || after != epoch || epoch < 2 {
		t.Errorf("after a restart: level %d, epoch %d; it was %d before", level, after, epoch)
	}
	if code := updateFeature(t, c, featureGroup, 1, upgrade); code != errNone {
		t.Fatalf("raising it again: %d", code)
	}
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{"nobody"}
	if got := gatedCode(t, c, req); got != errGroupIDNotFound {
		t.Errorf("ConsumerGroupDescribe with the feature on: %d", got)
	}
}

// TestOnlyChangesOfFeaturesAreLogged: a level that is asked for and there already is no change; nor is what is only judged, or refused.
func TestOnlyChangesOfFeaturesAreLogged(t *testing.T) {
	logs := new(logLines)
	b := startBroker(t, t.TempDir(), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(logs, nil)) })
	c := b.raw(t)
	ask := func(validateOnly bool, updates ...kmsg.UpdateFeaturesRequestFeatureUpdate) {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.SetVersion(1)
		req.ValidateOnly, req.FeatureUpdates = validateOnly, updates
		c.ask(t, req)
	}
	group := kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: featureGroup, MaxVersionLevel: 0, UpgradeType: 2}
	share := kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: featureShare, MaxVersionLevel: 2, UpgradeType: upgrade} // where it is
	ask(true, group, share)
	ask(false, share)
	ask(false, group, kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: "nothing", MaxVersionLevel: 1, UpgradeType: upgrade})
	ask(false, group, share)
	ask(false, group)
	var lines []string
	for _, line := range logs.lines() {
		if strings.Contains(line, "feature updated") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "feature="+featureGroup+" level=0") {
		t.Errorf("logged %q", lines)
	}
}

// gatedCode is the error of an answer, or of its first group.
func gatedCode(t *testing.T, c *rawConn, req kmsg.Request) int16 {
	t.Helper()
	switch req := req.(type) {
	case *kmsg.ConsumerGroupDescribeRequest:
		if len(req.Groups) == 0 {
			req.Groups = []string{"g"}
		}
	case *kmsg.ShareGroupDescribeRequest:
		req.GroupIDs = []string{"g"}
	case *kmsg.StreamsGroupDescribeRequest:
		req.Groups = []string{"g"}
	case *kmsg.DescribeShareGroupOffsetsRequest:
		req.Groups = []kmsg.DescribeShareGroupOffsetsRequestGroup{{GroupID: "g"}}
	}
	switch resp := c.ask(t, req).(type) {
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return resp.ErrorCode
	case *kmsg.ConsumerGroupDescribeResponse:
		return resp.Groups[0].ErrorCode
	case *kmsg.ShareGroupHeartbeatResponse:
		return resp.ErrorCode
	case *kmsg.ShareGroupDescribeResponse:
		return resp.Groups[0].ErrorCode
	case *kmsg.ShareFetchResponse:
		return resp.ErrorCode
	case *kmsg.ShareAcknowledgeResponse:
		return resp.ErrorCode
	case *kmsg.DescribeShareGroupOffsetsResponse:
		return resp.Groups[0].ErrorCode
	case *kmsg.StreamsGroupTopologyDescriptionUpdateResponse:
		return resp.ErrorCode
	case *kmsg.AlterShareGroupOffsetsResponse:
		return resp.ErrorCode
	case *kmsg.DeleteShareGroupOffsetsResponse:
		return resp.ErrorCode
	case *kmsg.StreamsGroupHeartbeatResponse:
		return resp.ErrorCode
	case *kmsg.StreamsGroupDescribeResponse:
		return resp.Groups[0].ErrorCode
	}
	t.Fatalf("%T has no error", req)
	return 0
}
