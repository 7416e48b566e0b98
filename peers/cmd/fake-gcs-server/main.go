// Command fake-gcs-server is an emulator of Google Cloud Storage, in memory, for tests. It never checks a signature.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	host := flag.String("host", "127.0.0.1", "host to listen on")
	port := flag.Uint("port", 4443, "port to listen on")
	public := flag.String("public-host", "", "host:port under which clients reach it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		Scheme:      "http",
		Host:        *host,
		Port:        uint16(*port),
		PublicHost:  *public,
		ExternalURL: "http://" + *public,
		Writer:      io.Discard,
	})
	if err != nil {
		log.Fatalf("fake-gcs-server: %v", err)
	}
	<-ctx.Done()
	s.Stop()
}
