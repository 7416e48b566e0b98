package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// UpdateFeatures, versions 0 to 2. Each feature is at the newest level of Apache Kafka 4.4 and stays there: to ask for that is right, for anything else refused.

func (b *Broker) handleUpdateFeatures(_ context.Context, c *conn, req *kmsg.UpdateFeaturesRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	if !b.allowedCluster(c, acl.Alter) {
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
		return resp, nil
	}
	var results []kmsg.UpdateFeaturesResponseResult
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		if err := checkFeature(u, req.Version); err != nil {
			resp.ErrorCode = errInvalidUpdateVersion
			resp.ErrorMessage = kmsg.StringPtr("The update failed for all features since the following feature had an error: " + err.Error())
			return resp, nil
		}
		results = append(results, kmsg.UpdateFeaturesResponseResult{Feature: u.Feature})
	}
	resp.Results = results // of which version 2 tells nothing
	return resp, nil
}

func checkFeature(u *kmsg.UpdateFeaturesRequestFeatureUpdate, version int16) error {
	const unsafeDowngrade = 3
	i := slices.IndexFunc(features, func(f feature) bool { return f.name == u.Feature })
	if i < 0 {
		return fmt.Errorf("invalid update version %d for feature %s: it is not known", u.MaxVersionLevel, u.Feature)
	}
	f := features[i]
	switch {
	case version >= 1 && (u.UpgradeType < 1 || u.UpgradeType > unsafeDowngrade):
		return fmt.Errorf("invalid upgrade type %d for feature %s", u.UpgradeType, f.name)
	case u.MaxVersionLevel < f.min || u.MaxVersionLevel > f.max:
		return fmt.Errorf("invalid update version %d for feature %s: this broker supports %d to %d", u.MaxVersionLevel, f.name, f.min, f.max)
	case u.MaxVersionLevel != f.max:
		return fmt.Errorf("invalid update version %d for feature %s: this broker keeps it at %d", u.MaxVersionLevel, f.name, f.max)
	}
	return nil
}
