package broker

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// UpdateFeatures, versions 0 to 2. All changes are made or none. Levels are lowered where Apache Kafka lowers them: metadata.version and kraft.version never are.

func (b *Broker) handleUpdateFeatures(_ context.Context, c *conn, req *kmsg.UpdateFeaturesRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	if !b.allowedCluster(c, acl.Alter) {
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
		return resp, nil
	}
	var results []kmsg.UpdateFeaturesResponseResult
	var refused error
	var changed map[string]int16
	err := b.features.update(func(level func(feature) int16) (map[string]int16, error) {
		changed = make(map[string]int16)
		for i := range req.FeatureUpdates {
			u := &req.FeatureUpdates[i]
			f, err := judgeFeature(u, req.Version, level)
			if err != nil {
				refused = err
				return nil, err
			}
			if u.MaxVersionLevel != level(f) {
				changed[f.name] = u.MaxVersionLevel
			}
			results = append(results, kmsg.UpdateFeaturesResponseResult{Feature: u.Feature})
		}
		return changed, nil
	}, req.Version >= 1 && req.ValidateOnly)
	switch {
	case refused != nil:
		text := "The update failed for all features since the following feature had an error: " + refused.Error()
		resp.ErrorCode, resp.ErrorMessage = errInvalidUpdateVersion, &text
		if len(text) > math.MaxInt16 { // longer than a text of Apache Kafka's may be
			resp.ErrorCode, resp.ErrorMessage = errUnknown, nil
		}
		return resp, nil
	case err != nil:
		b.log.Error("changing the levels of features", "err", err)
		resp.ErrorCode, resp.ErrorMessage = errStorage, kmsg.StringPtr("the levels could not be kept")
		return resp, nil
	case !req.ValidateOnly:
		for name, level := range changed {
			b.log.Info("feature updated", "feature", name, "level", level, "client", c.clientID, "peer", c.peer)
		}
	}
	resp.Results = results // of which version 2 tells nothing
	return resp, nil
}

const (
	upgrade         = 1
	unsafeDowngrade = 3
)

func judgeFeature(u *kmsg.UpdateFeaturesRequestFeatureUpdate, version int16, level func(feature) int16) (feature, error) {
	kind := u.UpgradeType
	if version == 0 {
		kind = upgrade // whatever it says about downgrades
	}
	f, known := featureNamed(u.Feature)
	invalid := func(why string, args ...any) error {
		return fmt.Errorf("invalid update version %d for feature %s: %s", u.MaxVersionLevel, u.Feature, fmt.Sprintf(why, args...))
	}
	switch {
	case kind < upgrade || kind > unsafeDowngrade:
		return f, invalid("there is no upgrade of type %d", u.UpgradeType)
	case !known && u.MaxVersionLevel == 0:
		return f, invalid("feature %s is not known", u.Feature)
	case u.MaxVersionLevel < 0:
		return f, invalid("no level is below 0")
	case !known:
		return f, invalid("this broker does not have it")
	case u.MaxVersionLevel < f.min || u.MaxVersionLevel > f.max:
		return f, invalid("this broker supports %d to %d", f.min, f.max)
	case u.MaxVersionLevel >= level(f):
		return f, nil
	case kind == upgrade:
		return f, invalid("it is at %d, and only a downgrade, safe or unsafe, lowers it", level(f))
	case f.name == featureMetadata && kind == unsafeDowngrade:
		return f, invalid("metadata cannot be lowered from %d, not even unsafely", level(f))
	case f.name == featureMetadata:
		return f, invalid("to lower it from %d could lose metadata", level(f))
	case f.fixed:
		return f, invalid("it cannot be lowered")
	}
	return f, nil
}
