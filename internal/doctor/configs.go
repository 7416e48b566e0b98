package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// configs asks for the configuration of one resource.
func (d *doctor) configs(ctx context.Context, kind kmsg.ConfigResourceType, name string) (map[string]string, error) {
	limited, cancel := d.limited(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(limited, d.ask)
	if err != nil {
		return nil, err
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return nil, err
		}
		m := make(map[string]string, len(r.Configs))
		for _, c := range r.Configs {
			if c.Value != nil {
				m[c.Name] = *c.Value
			}
		}
		return m, nil
	}
	return nil, fmt.Errorf("no answer about %s", name)
}

// tiering looks at the brokers' own configuration.
func (d *doctor) tiering(ctx context.Context) {
	brokers := make(map[int32]map[string]string)
	for _, b := range d.brokers {
		c, err := d.configs(ctx, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(b.NodeID)))
		if errors.Is(err, kerr.ClusterAuthorizationFailed) {
			d.rep.add(Warning, "tiering", d.grant("--operation DescribeConfigs --cluster")+" (only doctor needs it)", "the brokers' configuration may not be seen by this principal")
			return
		}
		if err != nil {
			d.rep.add(Warning, "tiering", askAgain, "the configuration of broker %d cannot be seen: %v", b.NodeID, err)
			continue
		}
		brokers[b.NodeID] = c
	}
	findings, plugin := judgeBrokers(brokers, len(d.brokers))
	d.rep.Findings, d.plugin = append(d.rep.Findings, findings...), plugin
	d.rep.Findings = append(d.rep.Findings, judgeListeners(brokers)...)
}

const (
	keySystem        = "remote.log.storage.system.enable"
	keyStorageClass  = "remote.log.storage.manager.class.name"
	keyMetadataClass = "remote.log.metadata.manager.class.name"
	topicBased       = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)

// judgeBrokers tells whether tiered storage is on, and the plug-in that the brokers run. all is how many there are, seen or not.
func judgeBrokers(brokers map[int32]map[string]string, all int) (findings []Finding, plugin string) {
	var r Report
	var off, elsewhere, strange []string
	plugins := make(map[string]bool)
	for _, id := range slices.Sorted(maps.Keys(brokers)) {
		c := brokers[id]
		system, ok := c[keySystem]
		if !ok {
			strange = append(strange, strconv.Itoa(int(id)))
			continue
		}
		if system != "true" {
			off = append(off, strconv.Itoa(int(id)))
			continue
		}
		if m := c[keyMetadataClass]; m != "" && m != topicBased {
			elsewhere = append(elsewhere, m)
		}
		if p := c[keyStorageClass]; p != "" {
			plugins[p] = true
		}
	}
	names := slices.Sorted(maps.Keys(plugins))
	if len(names) == 1 {
		plugin = names[0]
	}
	switch {
	case len(brokers) == 0:
	case len(off) > 0:
		r.add(Problem, "tiering", "set "+keySystem+"=true and a "+keyStorageClass+" on every broker; this takes a restart", "tiered storage is off on brokers %s", strings.Join(off, ", "))
	case len(elsewhere) > 0:
		r.add(Problem, "tiering", "history can be read directly only where brokers keep its metadata in __remote_log_metadata ("+topicBased+")", "the metadata of remote segments is kept by %s", elsewhere[0])
	case len(strange) > 0: // a Rewind broker, for one
		r.add(OK, "tiering", "", "brokers %s do not have Apache Kafka's "+keySystem+": what is tiered is seen by the metadata topic", strings.Join(strange, ", "))
	case len(names) > 1:
		r.add(Warning, "tiering", "look at "+keyStorageClass+" of the brokers", "the brokers run different plug-ins: %s", strings.Join(names, ", "))
	case len(brokers) < all:
		r.add(OK, "tiering", "", "tiered storage is on at %d of %d brokers; the others were not seen", len(brokers), all)
	default:
		r.add(OK, "tiering", "", "tiered storage is on at all %d brokers", all)
	}
	return r.Findings, plugin
}

// layoutOf is the layout that a plug-in writes, "" if it is not known.
func layoutOf(class string) string {
	switch {
	case strings.HasPrefix(class, "io.aiven.kafka.tieredstorage."):
		return "aiven"
	case strings.HasSuffix(class, ".LocalTieredStorage"):
		return "kafka"
	}
	return ""
}

// judgePlugin compares the brokers' plug-in with the layout that was given, and with what reading has shown.
func (d *doctor) judgePlugin() {
	if d.plugin == "" {
		return
	}
	switch want := layoutOf(d.plugin); {
	case want == "" && d.read:
		d.rep.add(OK, "layout", "", "the brokers' plug-in %s is not one that is known here, but writes layout %s", d.plugin, d.o.Layout)
	case want == "":
		d.rep.add(Warning, "layout", "segments of the plug-in can be read only if it writes layout kafka or aiven: give --store and --topic to see", "the brokers' plug-in %s is not one that is known here", d.plugin)
	case d.o.Storage != nil && want != d.o.Layout:
		d.rep.add(Problem, "layout", "--layout "+want, "the brokers' plug-in %s writes layout %s, not %s", d.plugin, want, d.o.Layout)
	default:
		d.rep.add(OK, "layout", "", "the brokers' plug-in %s writes layout %s", d.plugin, want)
	}
}

// judgeListeners finds ways to authenticate that do not work through a gateway.
func judgeListeners(brokers map[int32]map[string]string) []Finding {
	var r Report
	kerberos, mutual := "", ""
	for _, id := range slices.Sorted(maps.Keys(brokers)) {
		for _, k := range slices.Sorted(maps.Keys(brokers[id])) {
			v := brokers[id][k]
			switch {
			case strings.HasSuffix(k, "sasl.enabled.mechanisms") && strings.Contains(v, "GSSAPI") && usesSASL(brokers[id]):
				kerberos = k
			case strings.HasSuffix(k, "ssl.client.auth") && v == "required":
				mutual = k
			}
		}
	}
	if kerberos != "" {
		r.add(Warning, "gssapi", "through a gateway use SCRAM, PLAIN or OAUTHBEARER; Kerberos clients stay on the brokers, or use the library", "%s has GSSAPI: Kerberos tickets are for the host that the client dials, which is the gateway's", kerberos)
	}
	if mutual != "" {
		r.add(Warning, "client certs", "put the gateway before a listener that authenticates by SASL", "%s=required: the gateway shows no certificate for its clients, and cannot stand before that listener", mutual)
	}
	return r.Findings
}

// usesSASL: sasl.enabled.mechanisms is GSSAPI by default, also where no listener has SASL.
func usesSASL(config map[string]string) bool {
	protocols := make(map[string]string)
	for pair := range strings.SplitSeq(config["listener.security.protocol.map"], ",") {
		name, protocol, _ := strings.Cut(strings.TrimSpace(pair), ":")
		protocols[name] = protocol
	}
	for l := range strings.SplitSeq(config["listeners"], ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(l), ":")
		if p, ok := protocols[name]; ok {
			name = p
		}
		if strings.HasPrefix(name, "SASL_") {
			return true
		}
	}
	return false
}

// grant is the command that gives the principal a right.
func (d *doctor) grant(rights string) string {
	return "kafka-acls.sh --add --allow-principal User:" + d.user() + " " + rights
}

func (d *doctor) user() string {
	if u := d.o.Client.User(); u != "" {
		return u
	}
	return "PRINCIPAL"
}
