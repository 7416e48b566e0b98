package bytesize

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		back string
	}{
		{"0", 0, "0B"}, {"1", 1, "1B"}, {"17B", 17, "17B"}, {"2KiB", 2048, "2KiB"}, {"64 KiB", 64 << 10, "64KiB"}, {"1.5 MiB", 3 << 19, "1536KiB"},
		{"100MB", 100e6, "100MB"}, {"100MiB", 100 << 20, "100MiB"}, {" 104857600 ", 100 << 20, "100MiB"}, {"500kB", 500e3, "500kB"}, {"500KB", 500e3, "500kB"},
		{"512mib", 512 << 20, "512MiB"}, {"1gb", 1e9, "1GB"}, {"1TiB", 1 << 40, "1TiB"}, {"9007199254740993", 1<<53 + 1, "9007199254740993B"},
	} {
		got, err := Parse(c.text)
		if err != nil || got != c.want || Format(got) != c.back {
			t.Errorf("%q: %d, %v, written %s; want %d, %s", c.text, got, err, Format(got), c.want, c.back)
		}
	}
	for _, text := range []string{
		"", "B", "MB", "x", "-1", "-1MB", "1.5", "1.5B", "1XB", "100 parsecs", "9e30", "9e30MB", "NaN", "NaNMB", "InfGB", "9223372036854775808", "9223372036854775807GB", "100MB/s",
	} {
		if n, err := Parse(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	for _, text := range []string{"100MB", "100MB/s", " 100 MB/s "} {
		if n, err := ParseRate(text); err != nil || n != 100e6 {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if n, err := ParseRate("100MB/h"); err == nil {
		t.Errorf("100MB/h: %d", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "1.5GiB", "-1B", "9223372036854775807", "9223372036854775807B", "1e3kB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(Format(n)); n < 0 || err != nil || again != n {
			t.Errorf("%q: %d, then %d, %v", s, n, again, err)
		}
	})
}
