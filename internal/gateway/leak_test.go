package gateway

import (
	"bytes"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

const leakHost = "broker.behind.example"

// filled makes a response with something in every field: brokers have our ids and the address that must not get out.
func filled(key, version int16) kmsg.Response {
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	fill(reflect.ValueOf(resp).Elem(), "", new(int))
	resp.SetVersion(version)
	if r, ok := resp.(*kmsg.DescribeClusterResponse); ok {
		r.EndpointType = 1 // brokers; the other is a test of its own
	}
	return resp
}

var leakIDs = []int32{1, 7, 400}

func fill(v reflect.Value, name string, n *int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "UnknownTags" {
				fill(v.Field(i), f.Name, n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), name, n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), name, n)
		}
	case reflect.String:
		if name == "Host" {
			v.SetString(leakHost)
			return
		}
		v.SetString("a " + name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		*n++
		v.SetInt(int64(*n % 100))
		switch name {
		case "NodeID":
			v.SetInt(int64(leakIDs[*n%len(leakIDs)]))
		case "Port":
			v.SetInt(4242)
		case "ErrorCode":
			v.SetInt(0)
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(7)
		if name == "Port" {
			v.SetUint(4242)
		}
	}
}

// not brokers' addresses, or not for clients.
var hostsThatStay = map[int16]string{
	29: "DescribeACLs: hosts of ACLs", 31: "DeleteACLs: hosts of ACLs",
	88: "StreamsGroupHeartbeat: what members say of themselves", 89: "StreamsGroupDescribe: likewise",
	// Brokers and controllers among themselves; a broker does not offer them on its listeners.
	52: "Vote", 53: "BeginQuorumEpoch", 54: "EndQuorumEpoch", 59: "FetchSnapshot", 82: "UpdateRaftVoter",
}

// TestCase30_NoAddressGetsOut sends every key in every version, and looks for the brokers' host in what comes back. All the rest must be as it was.
func TestCase30_NoAddressGetsOut(t *testing.T) {
	var mu sync.Mutex
	var sent kmsg.Response
	broker := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		mu.Lock()
		defer mu.Unlock()
		if sent == nil {
			own := kmsg.NewPtrMetadataResponse() // the gateway's own question
			own.SetVersion(h.Version)
			return own
		}
		return sent
	})
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1})
	with := 0
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for version := range req.MaxVersion() + 1 {
			if key == keySaslHandshake && version == 0 || key == 0 && version < 3 {
				continue // bare tokens follow; of old produce requests kmsg writes no valid ones
			}
			req.SetVersion(version)
			if p, ok := req.(*kmsg.ProduceRequest); ok {
				p.Acks = -1
			}
			mu.Lock()
			sent = filled(key, version)
			original := wire.AppendResponse(nil, sent, 4711)[4:]
			mu.Unlock()
			got := exchange(t, g.Addr().String(), req)
			if !bytes.Contains(original, []byte(leakHost)) || hostsThatStay[key] != "" {
				if !bytes.Equal(got, original) && key != keyApiVersions {
					t.Errorf("%s version %d was changed", kmsg.NameForKey(key), version)
				}
				continue
			}
			with++
			if bytes.Contains(got, []byte(leakHost)) && key != keyFetch {
				t.Errorf("%s version %d: an address gets out", kmsg.NameForKey(key), version)
			}
			checkRest(t, g, parse(t, original, key, version), parse(t, got, key, version))
		}
	}
	if with < 30 {
		t.Errorf("only %d kinds of responses had addresses", with)
	}
}

// checkRest compares what was sent with what came: where the gateway's address stands, the broker's stood.
func checkRest(t *testing.T, g *Gateway, sent, got kmsg.Response) {
	t.Helper()
	name := fmt.Sprintf("%s version %d", kmsg.NameForKey(sent.Key()), sent.GetVersion())
	switch r := got.(type) {
	case *kmsg.FetchResponse:
		if len(r.Brokers) > 0 {
			t.Errorf("%s: nodes %v", name, r.Brokers)
		}
		r.UnknownTags, r.Brokers = kmsg.Tags{}, sent.(*kmsg.FetchResponse).Brokers
	case *kmsg.ShareFetchResponse:
		if len(r.NodeEndpoints) > 0 {
			t.Errorf("%s: nodes %v", name, r.NodeEndpoints)
		}
		r.UnknownTags, r.NodeEndpoints = kmsg.Tags{}, sent.(*kmsg.ShareFetchResponse).NodeEndpoints
	case *kmsg.DescribeQuorumResponse:
		for i := range r.Nodes {
			if len(r.Nodes[i].Listeners) > 0 {
				t.Errorf("%s: listeners %v", name, r.Nodes[i].Listeners)
			}
			r.Nodes[i].Listeners = sent.(*kmsg.DescribeQuorumResponse).Nodes[i].Listeners
		}
	default:
		if n := restore(t, g, reflect.ValueOf(got).Elem()); n == 0 {
			t.Errorf("%s: no address of the gateway in it", name)
		}
	}
	if !reflect.DeepEqual(sent, got) {
		t.Errorf("%s: more has changed than addresses:\n%+v\n%+v", name, sent, got)
	}
}

// restore puts the broker's address back where the gateway's is, and checks that it is the right one for the id.
func restore(t *testing.T, g *Gateway, v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			n += restore(t, g, v.Index(i))
		}
	case reflect.Struct:
		if host := v.FieldByName("Host"); host.IsValid() && host.String() != "" {
			id := int32(v.FieldByName("NodeID").Int())
			addr := net.JoinHostPort(host.String(), strconv.Itoa(int(v.FieldByName("Port").Int())))
			if want := g.BrokerAddr(id); want == nil || want.String() != addr {
				t.Errorf("broker %d is told to be at %s, want %v", id, addr, want)
			}
			host.SetString(leakHost)
			v.FieldByName("Port").SetInt(4242)
			n++
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "UnknownTags" {
				n += restore(t, g, v.Field(i))
			}
		}
	}
	return n
}
