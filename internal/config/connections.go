package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// connectionKeys bound the connections of one address. max.connections, of all of them, is with the others.
var connectionKeys = []*Key{
	{
		Name: "max.connections.per.ip", Kind: Int, Default: "2147483647", check: integer(32, 0, maxInt), Dynamic: true, bind: func(b *Broker) any { return &b.MaxConnectionsPerIP },
		Doc: "The most connections of one address at one time; further ones are closed at once.",
	},
	{
		Name: "max.connections.per.ip.overrides", Kind: String, Default: "", check: connectionOverrides, Allowed: "address:number,...", Dynamic: true,
		bind: func(b *Broker) any { return &b.MaxConnectionsPerIPOverrides },
		Doc:  "Addresses with a max.connections.per.ip of their own, as in 127.0.0.1:200,::1:100.",
	},
}

// connectionOverride is an address and how many connections it may have. The number is behind the last colon.
func connectionOverride(item string) (netip.Addr, int, error) {
	colon := strings.LastIndexByte(item, ':')
	if colon < 0 {
		return netip.Addr{}, 0, fmt.Errorf("%q has no number", item)
	}
	addr, err := netip.ParseAddr(strings.Trim(item[:colon], "[] "))
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%q is no address: names of hosts are not looked up", item[:colon])
	}
	n, err := strconv.ParseInt(strings.TrimSpace(item[colon+1:]), 10, 32)
	if err != nil || n < 0 {
		return netip.Addr{}, 0, fmt.Errorf("%q is no number of connections", item[colon+1:])
	}
	return addr.Unmap(), int(n), nil
}

func connectionOverrides(v string) (string, error) {
	var errs []error
	for _, item := range SplitList(v) {
		_, _, err := connectionOverride(item)
		errs = append(errs, err)
	}
	return v, errors.Join(errs...)
}

// MaxConnectionsOf is how many connections an address may have.
func (b *Broker) MaxConnectionsOf(addr netip.Addr) int {
	items := SplitList(b.MaxConnectionsPerIPOverrides)
	for _, item := range slices.Backward(items) { // of several for one the last counts
		if a, n, err := connectionOverride(item); err == nil && a == addr.Unmap() {
			return n
		}
	}
	return b.MaxConnectionsPerIP
}
