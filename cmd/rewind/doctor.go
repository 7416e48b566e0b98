package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/rewind-kafka/rewind/internal/doctor"
	"github.com/rewind-kafka/rewind/internal/upstream"
)

// doctorCmd looks at a cluster and its store, and says what stands in the way of direct reads.
type doctorCmd struct {
	storageFlags `embed:""`

	Upstream      []string      `required:"" help:"host:port of brokers." placeholder:"HOST:PORT"`
	CommandConfig string        `help:"Client properties of this program's own principal, as for Kafka's tools." type:"path"`
	Topic         []string      `help:"Look at this topic closely (may be repeated); without it at the group's topics, or at some that are tiered."`
	Group         string        `help:"Tell from where this consumer group would read."`
	AllowedHost   []string      `help:"A host of the store that consumers are told to open, as in the library's Options.AllowedHosts (may be repeated)."`
	Timeout       time.Duration `help:"How long to wait for each answer of the cluster and of the store." default:"10s"`
	JSON          bool          `help:"Print one JSON object."`
	Verbose       bool          `help:"Show the log of what is read on the way."`
}

// errProblem: the examination went well, the patient is not.
var errProblem = errors.New("a problem stands in the way of reading history directly")

// Validate refuses what kgo would make something of: it takes port 9092 where none is given, and a scheme for a part of the host's name.
func (c *doctorCmd) Validate() error {
	for _, address := range c.Upstream {
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			return fmt.Errorf("--upstream: %q is not host:port", address)
		}
	}
	return nil
}

func (c *doctorCmd) Run(ctx context.Context) error {
	client, err := upstream.Load(c.CommandConfig)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if c.Verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	o := doctor.Options{Seeds: c.Upstream, Client: client, Topics: c.Topic, Group: c.Group, Layout: c.Layout, AllowedHosts: c.AllowedHost, Patience: c.Timeout, Logger: log}
	if c.Store != "" {
		so, err := c.options()
		if err != nil {
			return err
		}
		storage, closer, err := openStorage(ctx, so, log)
		if err == nil {
			defer closer.Close()
			o.Storage = storage
		}
		o.StorageErr, o.Store = err, storeName(c.Store)
	}
	rep, err := doctor.Run(ctx, o)
	if err != nil {
		return err
	}
	write := rep.WriteText
	if c.JSON {
		write = rep.WriteJSON
	}
	if err := write(os.Stdout); err != nil {
		return err
	}
	if rep.Worst() == doctor.Problem {
		return errProblem
	}
	return nil
}
