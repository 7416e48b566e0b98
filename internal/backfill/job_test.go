package backfill

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
)

// TestJobEndsWithItsParent: a reader whose servers are silent gives up once nobody holds its standard input open.
func TestJobEndsWithItsParent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections wait in its backlog, unanswered
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	job, err := json.Marshal(Job{Mode: ModeConsumer, Broker: silent.Addr().String(), Topic: "t", Until: map[int32]int64{0: 1}})
	if err != nil {
		t.Fatal(err)
	}
	in, parent := io.Pipe()
	var out bytes.Buffer
	done := make(chan error)
	go func() { done <- ServeJob(t.Context(), string(job), in, &out) }()
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	select {
	case err := <-done:
		t.Fatalf("ended by itself: %v, %s", err, &out)
	default:
	}
	parent.Close()
	if err := <-done; err != nil || !strings.Contains(out.String(), "canceled") {
		t.Errorf("%v, wrote %s", err, &out)
	}
}
