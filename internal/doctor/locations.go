package doctor

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// locations asks the upstream itself for one record of history and for its location: Apache Kafka sends records, a Rewind broker or gateway answers with the location.
// signed tells that it was a signed one.
func (d *doctor) locations(ctx context.Context) (signed bool) {
	for i := range d.rep.Partitions {
		p := &d.rep.Partitions[i]
		if p.LogStart < 0 || p.LocalStart <= p.LogStart {
			continue
		}
		for _, t := range d.topics {
			if t.name == p.Topic {
				leader := d.leader(ctx, t, p.Partition)
				loc, err := d.fetch(ctx, t, leader, p.Partition, p.LogStart)
				d.rep.Findings = append(d.rep.Findings, judgeFetch(loc, err)...)
				if signed = err == nil && loc != nil && loc.SignedRemoteLogSegmentLocation != ""; signed {
					size, err := d.follow(ctx, loc, d.hostOf(leader))
					d.rep.Findings = append(d.rep.Findings, judgeFollow(loc, size, err))
				}
				return signed
			}
		}
	}
	return false
}

// signing tells whether the store, as it was opened here, signs the locations of a topic.
type signing struct {
	topic  string
	signed bool
}

// judgeSigning says who can be told signed locations. A directory is opened here without the key that the upstream signs its files' locations with.
func judgeSigning(topics []signing, upstream bool) []Finding {
	var r Report
	for _, t := range topics {
		switch {
		case t.signed:
			r.add(OK, "locations", "", "%s: locations are signed: capable clients read the store without credentials of their own", t.topic)
		case upstream:
			r.add(OK, "locations", "", "%s: the upstream signs locations: capable clients read the store without credentials of their own; without its key they cannot be signed from here", t.topic)
		default:
			r.add(OK, "locations", "", "%s: the store signs no locations for these segments: a gateway reads them for all its clients", t.topic)
		}
	}
	return r.Findings
}

// leader asks who leads a partition now: it may have moved since the topic was looked at.
func (d *doctor) leader(ctx context.Context, t *topic, partition int32) int32 {
	limited, cancel := d.limited(ctx)
	defer cancel()
	req, rt := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	rt.Topic = &t.name
	req.Topics = append(req.Topics, rt)
	if resp, err := req.RequestWith(limited, d.ask); err == nil && len(resp.Topics) == 1 {
		for _, p := range resp.Topics[0].Partitions {
			if p.Partition == partition && p.Leader >= 0 {
				return p.Leader
			}
		}
	}
	return t.leaders[partition]
}

// fetch asks the leader for one batch, as a capable client does.
func (d *doctor) fetch(ctx context.Context, t *topic, leader, partition int32, offset int64) (*remotestorage.Location, error) {
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
	resp, err := req.RequestWith(limited, d.broker(leader))
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

// follow opens a location as the library does, with the trust that it has in a broker of that host, and reads one batch.
func (d *doctor) follow(ctx context.Context, l *remotestorage.Location, brokerHost string) (size int, err error) {
	limited, cancel := context.WithTimeout(ctx, 3*d.o.Patience)
	defer cancel()
	f, err := httpfetcher.New(httpfetcher.Options{AllowedHosts: d.o.AllowedHosts, DialTimeout: d.o.Patience})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if u, err := url.Parse(l.SignedRemoteLogSegmentLocation); err == nil && strings.EqualFold(u.Hostname(), brokerHost) && u.Port() != "" {
		_ = f.AllowHost(u.Host) // one that must not be allowed is refused below
	}
	rng := remote.Range{Segment: remote.Segment{BaseOffset: l.BaseOffset, EndOffset: l.EndOffset, Source: location{f, l}}, StartPosition: l.StartPosition, EndPosition: l.EndPosition}
	b, err := firstBatch(limited, &rng)
	return len(b), err
}

// location is a segment that a server has told the place of.
type location struct {
	f remotestorage.RemoteStorageFetcher
	l *remotestorage.Location
}

func (l location) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	return l.f.FetchLogSegment(ctx, l.l, start, end)
}

func (d *doctor) hostOf(broker int32) string {
	for _, b := range d.brokers {
		if b.NodeID == broker {
			return b.Host
		}
	}
	return ""
}

// judgeFollow says what came of following a location. What is signed in it is a secret, and not told.
func judgeFollow(l *remotestorage.Location, size int, err error) Finding {
	var r Report
	const check = "location"
	host := "a host that cannot be told"
	if u, err := url.Parse(l.SignedRemoteLogSegmentLocation); err == nil {
		host = u.Host
	}
	switch {
	case err == nil:
		r.add(OK, check, "", "its location at %s was opened: a batch of %d bytes, its CRC is right", host, size)
	case errors.Is(err, remotestorage.ErrUntrusted):
		r.add(Problem, check, "name it to the consumer: Options.AllowedHosts of the library, remote.fetch.allowed.hosts of a gateway beside it (and --allowed-host here)",
			"locations are at %s, which a consumer does not open by itself", host)
	case errors.Is(err, remotestorage.ErrDenied):
		r.add(Problem, check, "check the clocks, and that the credentials of whoever signs may read the objects", "the store at %s refuses the location that was signed just now", host)
	case errors.Is(err, remotestorage.ErrNotFound):
		r.add(Problem, check, "check that the store of whoever answers with locations is the cluster's", "there is no object at the location at %s", host)
	default:
		r.add(Problem, check, "consumers that read directly need a way to the store: check names, proxies and firewalls between here and there", "the location at %s cannot be read: %v", host, err)
	}
	return r.Findings[0]
}
