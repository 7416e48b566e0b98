package main

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/internal/fileserver"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// storageOptions say where the segments of somebody's cluster lie, and who wrote them. Only URL and Layout are needed.
type storageOptions struct {
	URL        string
	Layout     string            // kafka or aiven
	Prefix     string            // key.prefix of Aiven's plug-in
	Keys       map[string]string // of layout aiven: files with private keys, by key id
	Expiry     time.Duration     // of signed locations; 0: 10 minutes
	CacheBytes int64             // of layout aiven: opened chunks; 0: the layout's default
	Signer     *fileserver.Signer
}

// openStorage opens a cluster's store for reading. What it gives is a pinger too. The closer is to be closed last.
func openStorage(ctx context.Context, o storageOptions, log *slog.Logger) (remotestorage.RemoteStorageManager, io.Closer, error) {
	keys, err := o.keys()
	if err != nil {
		return nil, nil, err
	}
	store, err := openStore(ctx, o.URL, o.Signer)
	if err != nil {
		return nil, nil, err
	}
	var m remotestorage.RemoteStorageManager
	if o.Layout == "aiven" {
		m, err = aiven.NewManager(aiven.Options{Store: store, KeyPrefix: o.Prefix, Keys: keys, URLExpiry: o.Expiry, CacheBytes: o.CacheBytes, Logger: log})
	} else {
		m, err = bucket.NewManager(bucket.Options{Store: store, URLExpiry: o.Expiry, Logger: log})
	}
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return m, store, nil
}

func (o storageOptions) keys() (map[string]*rsa.PrivateKey, error) {
	switch {
	case o.Layout != "kafka" && o.Layout != "aiven":
		return nil, fmt.Errorf("layout %q: must be kafka or aiven", o.Layout)
	case o.Layout == "kafka" && len(o.Keys) > 0:
		return nil, errors.New("layout kafka is not encrypted: keys belong to layout aiven")
	case o.Layout == "kafka" && o.Prefix != "":
		return nil, errors.New("a key prefix belongs to layout aiven; give a folder in the store as ?prefix= in its URL")
	}
	keys := make(map[string]*rsa.PrivateKey, len(o.Keys))
	for id, file := range o.Keys {
		k, err := aiven.LoadKey(file)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", id, err)
		}
		keys[id] = k
	}
	return keys, nil
}

// storageFlags name a cluster's store on the command line.
type storageFlags struct {
	Store  string   `help:"Object store URL of the cluster's tiered storage: file:///dir, s3://bucket?region=..., gs://bucket, azblob://container."`
	Layout string   `help:"Who wrote the objects: kafka (Apache Kafka's own plug-in, or Rewind) or aiven (Aiven's plug-in)." default:"kafka" enum:"kafka,aiven"`
	Prefix string   `help:"key.prefix of Aiven's plug-in."`
	Key    []string `help:"A private key of layout aiven, a PEM file." placeholder:"ID=FILE" sep:"none"`
}

func (f storageFlags) options() (storageOptions, error) {
	o := storageOptions{URL: f.Store, Layout: f.Layout, Prefix: f.Prefix, Keys: make(map[string]string)}
	for _, k := range f.Key {
		id, file, ok := strings.Cut(k, "=")
		if !ok || id == "" || file == "" {
			return o, fmt.Errorf("--key %q: want ID=FILE", k)
		}
		o.Keys[id] = file
	}
	return o, nil
}

// storeName is a store's URL without parameters, which may be confidential.
func storeName(rawURL string) string {
	name, _, _ := strings.Cut(rawURL, "?")
	return name
}
