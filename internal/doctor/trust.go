package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/metadatatopic"
)

// trust says what changes for security when a gateway stands before the cluster.
func (d *doctor) trust(ctx context.Context) {
	if d.o.Client.HasCertificate() && d.alone != nil {
		limited, cancel := d.limited(ctx)
		defer cancel()
		if err := d.alone(limited); err != nil {
			d.rep.add(Problem, "client certs", demandsCertificate, "the listener authenticates by client certificates alone: a gateway before it is refused")
		}
	}
	if d.o.Client.Protocol() == "PLAINTEXT" || d.o.Client.Protocol() == "SSL" {
		d.rep.add(OK, "principal", "", "the listener does not authenticate by SASL: gateway and clients come as the same principal there")
	}
	if _, ok := d.newest[keyDescribeACLs]; ok {
		acls, err := d.acls(ctx)
		d.rep.Findings = append(d.rep.Findings, d.judgeACLs(acls, err)...)
	} else {
		d.rep.add(OK, "acls", "", "the brokers know no ACLs: everybody who can connect may read everything")
	}
	quotas, err := d.quotas(ctx)
	if err == nil {
		d.rep.Findings = append(d.rep.Findings, judgeQuotas(quotas)...)
	}
}

func (d *doctor) acls(ctx context.Context) ([]kmsg.DescribeACLsResponseResource, error) {
	limited, cancel := d.limited(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(limited, d.ask)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	return resp.Resources, nil
}

func (d *doctor) judgeACLs(acls []kmsg.DescribeACLsResponseResource, err error) []Finding {
	var r Report
	const check, layout = "acls", "who may read " + metadatatopic.DefaultTopic + " learns every tiered topic's name, size and layout, and needs only the store's credentials to read it"
	switch {
	case errors.Is(err, kerr.SecurityDisabled):
		r.add(OK, check, "", "the cluster has no authorizer: everybody who can connect may read everything, %s included", metadatatopic.DefaultTopic)
		return r.Findings
	case err != nil:
		r.add(Warning, check, d.grant("--operation Describe --cluster")+" (only doctor needs it); else look yourself: ACLs by host see the gateway's address, and "+layout,
			"ACLs cannot be seen: %v", err)
		return r.Findings
	}
	var hosts, readers []string
	for _, res := range acls {
		for _, a := range res.ACLs {
			if a.Host != "*" {
				hosts = append(hosts, a.Principal+" from "+a.Host)
			}
			if a.PermissionType == kmsg.ACLPermissionTypeAllow && (a.Operation == kmsg.ACLOperationRead || a.Operation == kmsg.ACLOperationAll) &&
				covers(&res, metadatatopic.DefaultTopic) && a.Principal != "User:"+d.user() {
				readers = append(readers, a.Principal)
			}
		}
	}
	slices.Sort(hosts)
	slices.Sort(readers)
	hosts, readers = slices.Compact(hosts), slices.Compact(readers)
	if len(hosts) > 0 {
		r.add(Warning, check, "before clients go through a gateway, give the gateway's address in them, or tell clients apart by principal", "ACLs by host (%s): through a gateway every client has the gateway's address", shown(hosts))
	}
	if len(readers) > 0 {
		r.add(Warning, check, "take the right away from whoever does not need it", "%s may read %s: %s", shown(readers), metadatatopic.DefaultTopic, layout)
	}
	if len(hosts)+len(readers) == 0 {
		r.add(OK, check, "", "no ACL is by host, and by ACLs nobody else may read %s", metadatatopic.DefaultTopic)
	}
	return r.Findings
}

// covers tells whether a resource pattern is one of a topic of that name.
func covers(r *kmsg.DescribeACLsResponseResource, topic string) bool {
	if r.ResourceType != kmsg.ACLResourceTypeTopic {
		return false
	}
	if r.ResourcePatternType == kmsg.ACLResourcePatternTypePrefixed {
		return strings.HasPrefix(topic, r.ResourceName)
	}
	return r.ResourceName == topic || r.ResourceName == "*"
}

func (d *doctor) quotas(ctx context.Context) ([]kmsg.DescribeClientQuotasResponseEntry, error) {
	limited, cancel := d.limited(ctx)
	defer cancel()
	resp, err := kmsg.NewPtrDescribeClientQuotasRequest().RequestWith(limited, d.ask)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	return resp.Entries, nil
}

func judgeQuotas(entries []kmsg.DescribeClientQuotasResponseEntry) []Finding {
	var r Report
	ips, consumers := 0, 0
	for _, e := range entries {
		for _, c := range e.Entity {
			if c.Type == "ip" {
				ips++
			}
		}
		for _, v := range e.Values {
			if v.Key == "consumer_byte_rate" {
				consumers++
			}
		}
	}
	if ips > 0 {
		r.add(Warning, "quotas", "exempt the gateway's address, or raise its connection_creation_rate", "%d quotas by IP address: through a gateway every client has the gateway's address", ips)
	}
	if consumers > 0 {
		r.add(Warning, "quotas", "give the gateway remote.read.principal.bytes.per.second", "%d quotas of consumer_byte_rate: bytes that come from the store do not pass a broker, and do not count", consumers)
	}
	return r.Findings
}
