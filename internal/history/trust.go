package history

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Locations says which locations of upstream are asked for and what opens them.
type Locations struct {
	// Formats are the segment formats asked for.
	Formats []string
	// Fetchers open unsigned locations with credentials of their own. The longest prefix that the location starts with decides, and a fetcher that matches is
	// preferred to a signed URL.
	Fetchers []Fetcher
	// HTTP opens what Fetchers do not, and knows which hosts and folders may be opened.
	HTTP *httpfetcher.Fetcher
}

// Fetcher is a fetcher and the beginning of the locations that it is for.
type Fetcher struct {
	Prefix  string
	Fetcher remotestorage.RemoteStorageFetcher
}

// sorted is a copy with the longest prefix first: the first that matches is then the right one.
func (o *Locations) sorted() *Locations {
	if o == nil {
		return nil
	}
	out := *o
	out.Fetchers = slices.Clone(o.Fetchers)
	slices.SortFunc(out.Fetchers, func(a, b Fetcher) int { return len(b.Prefix) - len(a.Prefix) })
	return &out
}

// opener chooses what opens a location: the user's fetcher for its store, else HTTP, or a file.
func (o *Locations) opener(l *remotestorage.Location, p *Peer) (remotestorage.RemoteStorageFetcher, error) {
	for _, f := range o.Fetchers {
		if strings.HasPrefix(l.RemoteLogSegmentLocation, f.Prefix) {
			return f.Fetcher, nil
		}
	}
	o.trustOwnHost(l, p)
	if err := o.HTTP.Check(l); err != nil {
		return nil, fmt.Errorf("opening %s: %w (AllowedHosts and AllowedRoots of the options name more)", objectName(l), err)
	}
	return o.HTTP, nil
}

// trustOwnHost allows a URL on the host that was dialled for the broker: on the port that the broker names in it, for who answers for that host's Kafka port
// answers for the host. See docs/decisions/0001-trusting-locations.md.
func (o *Locations) trustOwnHost(l *remotestorage.Location, p *Peer) {
	u, err := url.Parse(l.SignedRemoteLogSegmentLocation)
	if err != nil || !strings.EqualFold(u.Hostname(), p.Host) {
		return
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	// An error means that the host is not allowed; the question that follows says so.
	_ = o.HTTP.AllowBroker(net.JoinHostPort(u.Hostname(), port), p.Addr)
}
