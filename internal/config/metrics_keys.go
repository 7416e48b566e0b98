package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// clientMetricsKeys are the configurations of a subscription to clients' metrics (KIP-714). They are kept and described; nothing here receives metrics.
var clientMetricsKeys = []*Key{
	{
		Name: "interval.ms", Kind: Int, Default: "300000", check: integer(32, 100, hour), Allowed: "100 to 3600000",
		Doc: "How often clients would send their metrics.",
	},
	{
		Name: "match", Kind: List, Default: "", check: clientMatch, Allowed: "name=pattern,...",
		Doc: "Which clients are meant, by client_instance_id, client_id, client_software_name, client_software_version, client_source_address or client_source_port.",
	},
	{
		Name: "metrics", Kind: List, Default: "", check: onceEach, Allowed: "prefixes of names, or *",
		Doc: "Which metrics clients would send.",
	},
}

var clientMetricsIndex = index(clientMetricsKeys)

// ClientMetricsKey returns the definition of a key of subscriptions, or ErrUnknownKey.
func ClientMetricsKey(name string) (*Key, error) {
	if k, ok := clientMetricsIndex[name]; ok {
		return k, nil
	}
	return nil, unknownKey(name, clientMetricsKeys)
}

// CheckClientMetrics judges what is to be set for a subscription.
func CheckClientMetrics(overrides map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		k, err := ClientMetricsKey(name)
		if err == nil {
			_, err = k.Parse(overrides[name])
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// DescribeClientMetrics returns every key of a subscription with its value.
func DescribeClientMetrics(overrides map[string]string) []Entry {
	entries := make([]Entry, 0, len(clientMetricsKeys))
	for _, k := range clientMetricsKeys {
		e := Entry{Key: k, Value: k.Default, Source: SourceDefault}
		if v, ok := overrides[k.Name]; ok {
			if c, err := k.Parse(v); err == nil {
				v = c
			}
			e.Value, e.Source = v, SourceClientMetrics
			e.Synonyms = []SynonymValue{{Name: k.Name, Value: v, Source: SourceClientMetrics}}
		}
		entries = append(entries, e)
	}
	return entries
}

// onceEach is a list of any names; one that is given twice counts once.
func onceEach(v string) (string, error) {
	var kept []string
	for _, item := range SplitList(v) {
		if !slices.Contains(kept, item) {
			kept = append(kept, item)
		}
	}
	return strings.Join(kept, ","), nil
}

var matchable = []string{"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}

func clientMatch(v string) (string, error) {
	v, _ = onceEach(v)
	for _, item := range SplitList(v) {
		name, pattern, ok := strings.Cut(item, "=")
		if !ok || strings.TrimSpace(pattern) == "" || strings.Contains(pattern, "=") || !slices.Contains(matchable, strings.TrimSpace(name)) {
			return "", fmt.Errorf("illegal client matching pattern: %s", item)
		}
		if _, err := regexp.Compile(strings.TrimSpace(pattern)); err != nil {
			return "", fmt.Errorf("illegal client matching pattern: %s: %w", item, err)
		}
	}
	return v, nil
}
