// Command versitygw is an S3 server on a directory, for tests: Versity's gateway with its POSIX back end, on one loopback port.
// Keys come from ROOT_ACCESS_KEY and ROOT_SECRET_KEY. It ends with the process that started it, or by SIGTERM.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7070", "address to listen on")
	dir := flag.String("dir", "", "directory of the buckets")
	flag.Parse()
	if *dir == "" {
		log.Fatal("versitygw: -dir is missing")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *dir); err != nil {
		log.Fatalf("versitygw: %v", err)
	}
}

func run(ctx context.Context, addr, dir string) error {
	// The back end changes into its root, so that everything relative means something else from then on.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	root, side := filepath.Join(dir, "buckets"), filepath.Join(dir, "sidecar")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	var opts posix.PosixOpts
	var store meta.MetadataStorer = meta.XattrMeta{}
	if err := (meta.XattrMeta{}).Test(root); err != nil { // not every file system keeps extended attributes
		if err := os.MkdirAll(side, 0o755); err != nil {
			return err
		}
		s, err := meta.NewSideCar(side)
		if err != nil {
			return err
		}
		store, opts.SideCarDir = s, side
	}
	opts.Concurrency = 256
	be, err := posix.New(root, store, opts)
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, be, &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_KEY"),
		Ports:             []string{addr},
		MaxConnections:    4096,
		MaxRequests:       2048,
		MultipartMaxParts: 10000,
		KeepAlive:         true,
		Quiet:             true,
	})
}
