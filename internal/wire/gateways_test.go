package wire

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestGateways(t *testing.T) {
	var tags kmsg.Tags
	if ids, ok, err := Gateways(&tags); ids != nil || ok || err != nil {
		t.Errorf("absent: %v %v %v", ids, ok, err)
	}
	for _, n := range []int{0, 1, 3, MaxGateways} {
		want := make([]GatewayID, n)
		for i := range want {
			want[i][0], want[i][15] = byte(i), 1
		}
		SetGateways(&tags, want)
		if ids, ok, err := Gateways(&tags); !slices.Equal(ids, want) || !ok || err != nil {
			t.Errorf("%d: %v %v %v", n, ids, ok, err)
		}
	}
	if GivesLocations(&tags) {
		t.Error("nobody gives locations")
	}
	SetGivesLocations(&tags)
	if !GivesLocations(&tags) {
		t.Error("locations are given")
	}
	SetGateways(&tags, make([]GatewayID, MaxGateways+1))
	if ids, _, err := Gateways(&tags); len(ids) != MaxGateways || err != nil {
		t.Errorf("too many: %d, %v", len(ids), err)
	}
	for _, n := range []int{1, 15, 17, 16*MaxGateways + 16} {
		tags.Set(TagGateways, make([]byte, n))
		if _, ok, err := Gateways(&tags); !ok || err == nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func FuzzGateways(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 16))
	f.Add(make([]byte, 17))
	f.Fuzz(func(t *testing.T, b []byte) {
		var tags kmsg.Tags
		tags.Set(TagGateways, b)
		ids, ok, err := Gateways(&tags)
		if !ok || (err == nil) != (len(b)%16 == 0 && len(b) <= 16*MaxGateways) || err == nil && len(ids) != len(b)/16 {
			t.Errorf("%d bytes: %d ids, %v, %v", len(b), len(ids), ok, err)
		}
	})
}
