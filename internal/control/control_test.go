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
			io.WriteString(os.Stderr, "no such thing\n")
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

func TestChildThatDies(t *testing.T) {
	_, err := Start(t.Context(), nil, "child-that-dies")
	if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("got %v, want the end of what the child said", err)
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
