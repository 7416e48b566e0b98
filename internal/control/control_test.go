package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the child.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "child":
			if err := Serve(context.Background(), os.Stdin, os.Stdout, Ready{Addr: "here:1"}, func() (int64, int64) { return 7, 3 }); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		case "child-that-dies":
			io.WriteString(os.Stderr, os.Args[2])
			os.Exit(1)
		case "child-that-stays":
			Serve(context.Background(), os.Stdin, os.Stdout, Ready{}, nil)
			time.Sleep(time.Hour)
		}
	}
	os.Exit(m.Run())
}

func TestChild(t *testing.T) {
	c, err := Start(t.Context(), nil, "child")
	if err != nil {
		t.Fatal(err)
	}
	if c.Ready.Addr != "here:1" {
		t.Errorf("ready: %+v", c.Ready)
	}
	for range 2 {
		u, err := c.Usage()
		if err != nil || u.BytesSent != 7 || u.Fetches != 3 || u.MaxRSS <= 0 {
			t.Errorf("usage %+v, %v", u, err)
		}
	}
	if err := c.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := c.Usage(); err == nil {
		t.Error("usage of a child that has gone")
	}
}

// TestChildThatDies: why comes first, and nothing of the pipe that broke.
func TestChildThatDies(t *testing.T) {
	for name, c := range map[string]struct{ said, want string }{
		"one line":           {"rewind: no such thing\n", "no such thing"},
		"after its log":      {"level=WARN msg=a\nlevel=INFO msg=b\nrewind: no such thing\n", "no such thing\nlevel=WARN msg=a\nlevel=INFO msg=b"},
		"several mistakes":   {"level=INFO msg=b\nrewind: no such thing\nnor such\n", "no such thing\nnor such\nlevel=INFO msg=b"},
		"not by its own end": {"level=INFO msg=b\nkilled by somebody\n", "killed by somebody\nlevel=INFO msg=b"},
		"without a word":     {"", "reading its answer: EOF"},
		"an empty line":      {"\n", "reading its answer: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), nil, "child-that-dies", c.said)
			if want := ErrStart.Error() + ": child-that-dies: " + c.want; !errors.Is(err, ErrStart) || err.Error() != want {
				t.Errorf("%q, want %q", err, want)
			}
		})
	}
}

func TestChildThatStays(t *testing.T) {
	c, err := Start(t.Context(), nil, "child-that-stays")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(10 * time.Millisecond); err == nil {
		t.Error("no error though it had to be killed")
	}
	if c.cmd.ProcessState == nil {
		t.Error("still running")
	}
}

func TestServeEnds(t *testing.T) {
	var out bytes.Buffer
	if err := Serve(t.Context(), strings.NewReader("usage\n"), &out, Ready{}, func() (int64, int64) { return 1, 2 }); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&out)
	var r Ready
	var u Usage
	if err := errors.Join(d.Decode(&r), d.Decode(&u)); err != nil || u.BytesSent != 1 || u.Fetches != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	if err := Serve(t.Context(), strings.NewReader("dance\n"), io.Discard, Ready{}, nil); err == nil {
		t.Error("an unknown line is no error")
	}
}
