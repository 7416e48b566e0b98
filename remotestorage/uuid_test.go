package remotestorage

import "testing"

func TestUUID(t *testing.T) {
	for text, want := range map[string]UUID{
		"AAAAAAAAAAAAAAAAAAAAAA": {},
		"AAAAAAAAAAAAAAAAAAAAAQ": {15: 1}, // Kafka's METADATA_TOPIC_ID
		"_____________________w": {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
	} {
		got, err := ParseUUID(text)
		if err != nil || got != want || got.String() != text || got.IsZero() != (want == UUID{}) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "AAAA", "AAAAAAAAAAAAAAAAAAAAAA==", "AAAAAAAAAAAAAAAAAAAAAAAA", "++++++++++++++++++++++"} {
		if got, err := ParseUUID(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestRandomUUID(t *testing.T) {
	seen := make(map[UUID]bool)
	for range 1000 { // one in 64 would begin with a dash
		u := RandomUUID()
		if u[6]>>4 != 4 || u[8]>>6 != 2 || u.String()[0] == '-' || seen[u] {
			t.Fatalf("%v, %x", u, u)
		}
		seen[u] = true
	}
}
