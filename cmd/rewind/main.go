// Command rewind is the one binary: broker, gateway, doctor, demo, bench. It holds flags and signals; the only os.Exit is here.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// cli is the whole command line.
type cli struct {
	Broker  brokerCmd  `cmd:"" help:"Run a one-node Kafka broker that tiers to an object store and answers with locations."`
	Gateway gatewayCmd `cmd:"" help:"Stand before an Apache Kafka cluster: pass everything through, and read history straight from its object store."`
	Doctor  doctorCmd  `cmd:"" help:"Look at a cluster and its object store, and say what stands between its consumers and direct reads."`
	Store   storeCmd   `cmd:"" help:"Serve signed URLs on a directory store, as an object store would, apart from the broker."`
	Demo    demoCmd    `cmd:"" help:"Load a topic, let it tier, read its history back through the broker and directly, and print the table."`
	Bench   benchCmd   `cmd:"" help:"Measure the figures, with --peer against a real Apache Kafka."`
	Version versionCmd `cmd:"" help:"Print the version."`

	BackfillJob jobCmd `cmd:"" hidden:"" name:"backfill-job"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	var c cli
	exit := -1
	parser, err := kong.New(&c, kong.Name("rewind"), kong.Description("Read Kafka's past straight from object storage."),
		kong.UsageOnError(), kong.Exit(func(code int) { exit = code }), kong.TypeMapper(sizeType, sizeMapper),
		kong.NamedMapper("path", pathMapper))
	if err != nil {
		fmt.Fprintln(os.Stderr, "rewind:", err)
		return 2
	}
	k, err := parser.Parse(args)
	if exit >= 0 { // --help
		return exit
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rewind: %v (see rewind --help)\n", err)
		return 2
	}
	k.BindTo(ctx, (*context.Context)(nil))
	if err := k.Run(); err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "rewind: interrupted")
			return 130
		}
		fmt.Fprintln(os.Stderr, "rewind:", err)
		return 1
	}
	return 0
}

type versionCmd struct{}

func (versionCmd) Run() error {
	version := "unknown"
	if b, ok := debug.ReadBuildInfo(); ok {
		version = b.Main.Version
	}
	_, err := fmt.Println("rewind", version)
	return err
}

// logFlags are shared by the servers.
type logFlags struct {
	LogLevel slog.Level `help:"debug, info, warn or error." default:"info"`
}

func (l logFlags) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l.LogLevel}))
}

// leveled is a logger whose level can be changed.
func (l logFlags) leveled() (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(l.LogLevel)
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), level
}
