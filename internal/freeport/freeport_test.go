package freeport

import (
	"errors"
	"net"
	"testing"
)

func listen(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", Address(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func TestFind(t *testing.T) {
	for n := 1; n < 5; n++ {
		first, err := Find(n)
		if err != nil {
			t.Fatal(err)
		}
		if first < lowest || first+n > 1<<16 {
			t.Errorf("%d ports from %d", n, first)
		}
		for i := range n {
			listen(t, first+i) // free, all at once
		}
	}
	for _, n := range []int{0, -1, 1 << 16} {
		if first, err := Find(n); !errors.Is(err, errNone) {
			t.Errorf("%d ports: from %d, %v", n, first, err)
		}
	}
}

// TestTakenPortsArePassedOver: of five ports the middle one is taken; two in a row are left on either side, three nowhere.
func TestTakenPortsArePassedOver(t *testing.T) {
	first, err := Find(5)
	if err != nil {
		t.Fatal(err)
	}
	listen(t, first+2)
	seen := map[int]bool{}
	for range 50 {
		at, err := search(first, first+5, 2)
		if err != nil {
			t.Fatal(err)
		}
		seen[at-first] = true
	}
	if !seen[0] || !seen[3] || len(seen) != 2 {
		t.Errorf("two in a row were found at %v, want at 0 and 3", seen)
	}
	if at, err := search(first, first+5, 3); !errors.Is(err, errNone) {
		t.Errorf("three in a row at %d, %v", at-first, err)
	}
}

func TestFirstEphemeral(t *testing.T) {
	for text, want := range map[string]int{
		"32768\t60999\n": 32768, "49152 65535\n": 49152, "20000 60000": 20000, "16000 60000": 16000,
		"1024 65535": ephemeral, "15100 65535": ephemeral, "": ephemeral, "x y": ephemeral, "99999 99999": ephemeral, "-1 2": ephemeral,
	} {
		if got := firstEphemeral(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
