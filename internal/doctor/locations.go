package doctor

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// locations asks the upstream itself for one record of history and for its location: Apache Kafka sends records, a Rewind broker or gateway answers with the location.
func (d *doctor) locations(ctx context.Context) {
	for i := range d.rep.Partitions {
		p := &d.rep.Partitions[i]
		if p.LogStart < 0 || p.LocalStart <= p.LogStart {
			continue
		}
		for _, t := range d.topics {
			if t.name == p.Topic {
				loc, err := d.fetch(ctx, t, p.Partition, p.LogStart)
				d.rep.Findings = append(d.rep.Findings, judgeFetch(loc, err)...)
				return
			}
		}
	}
}

// fetch asks the leader for one batch, as a capable client does.
func (d *doctor) fetch(ctx context.Context, t *topic, partition int32, offset int64) (*remotestorage.Location, error) {
	limited, cancel := context.WithTimeout(ctx, 3*d.o.Patience)
	defer cancel()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, int32(d.o.Patience.Milliseconds()), 1, 1
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rt.TopicID = t.name, t.id
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, 1
	wire.SetLocationRequested(&rp, true)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	wire.SetSupportedStorageFormatVersions(req, []string{remotestorage.StorageFormatApacheKafkaV1})
	resp, err := req.RequestWith(limited, d.broker(t.leaders[partition]))
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0 {
		return nil, errors.New("the answer does not have the partition")
	}
	p := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return nil, err
	}
	return wire.PartitionLocation(p)
}

func judgeFetch(l *remotestorage.Location, err error) []Finding {
	var r Report
	const check = "upstream"
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed): // doctor needs no READ, and so is not told
	case err != nil:
		r.add(Warning, check, "look at the brokers' log: RemoteLogManager and the plug-in", "the brokers do not serve that history themselves: %v", err)
	case l != nil && l.SignedRemoteLogSegmentLocation != "":
		r.add(OK, check, "", "it is a Rewind broker or gateway: it answers with signed locations; --resolve upstream and a library without a resolver will do")
	case l != nil:
		r.add(OK, check, "", "it is a Rewind broker or gateway: it answers with locations, not signed; who follows them needs credentials for the store")
	default:
		r.add(OK, check, "", "it answers with records, as Apache Kafka does: who reads directly resolves from the metadata topic (--resolve metadata, or the library with metadatatopic)")
	}
	return r.Findings
}
