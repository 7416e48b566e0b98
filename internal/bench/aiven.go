package bench

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/aivenwrite"
	"github.com/rewind-kafka/rewind/internal/backfill"
)

const (
	topicText  = "text"
	aivenKeyID = "bench"
	// recordedPlugin is what Apache Kafka 4.4 with Aiven's plug-in gave one consumer at best, in MiB/s, at 1 MiB a fetch and no distance, zstd and AES on: 40 to 73
	// were measured on another day. The plug-in itself cannot be had where this runs.
	recordedPlugin = 73
)

// measureAiven reads a topic that lies in the store as Aiven's plug-in would have put it there, compressed and encrypted.
func measureAiven(ctx context.Context, l *lab) ([]Row, error) {
	if err := l.fill(ctx, l.peer.addr(), topicSpec{topicText, 1, true, true}, l.peer.until); err != nil {
		return nil, err
	}
	dir := filepath.Join(l.dir, "aiven")
	keyFile, logBytes, err := l.convert(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("writing the topic in Aiven's layout: %w", err)
	}
	l.say("  %d MiB of segments were written in Aiven's layout", logBytes>>20)
	aivenJob, plain := l.bareJob(topicText, false), l.bareJob(topicText, false)
	aivenJob.Bare = &backfill.Bare{Dir: dir, KeyID: aivenKeyID, KeyFile: keyFile}
	res, err := l.alternate(ctx, side{"library, Aiven's objects with zstd and AES", l.run(aivenJob)}, side{"library, plain objects", l.run(plain)})
	if err != nil {
		return nil, err
	}
	one := median(res[0])
	return []Row{
		{"Aiven's objects with zstd and AES, no distance: the library / the best recorded of Apache Kafka with the plug-in", one, recordedPlugin, 5, "MiB/s"},
		{"Aiven's objects with zstd and AES / plain objects, no distance", one, median(res[1]), 0, "MiB/s"},
	}, nil
}

// convert writes the topic's segments anew, with a key made for it.
func (l *lab) convert(ctx context.Context, dir string) (keyFile string, logBytes int64, err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", 0, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", 0, err
	}
	keyFile = filepath.Join(l.dir, "aiven.pem")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return "", 0, err
	}
	from, err := l.linkTopic(topicText)
	if err != nil {
		return "", 0, err
	}
	stores := make([]*bucket.Store, 2)
	for i, d := range []string{from, dir} {
		if stores[i], err = file.Open(d, file.Options{}); err != nil {
			return "", 0, err
		}
		defer func() { err = errors.Join(err, stores[i].Close()) }()
	}
	m, err := bucket.NewManager(bucket.Options{Store: stores[0]})
	if err != nil {
		return "", 0, err
	}
	w, err := aivenwrite.New(aivenwrite.Options{Store: stores[1], Compress: true, KeyID: aivenKeyID, Key: &key.PublicKey})
	if err != nil {
		return "", 0, err
	}
	_, logBytes, err = w.Convert(ctx, m)
	return keyFile, logBytes, err
}

// linkTopic makes a store that holds one topic of the peer's.
func (l *lab) linkTopic(topic string) (dir string, err error) {
	dir = filepath.Join(l.dir, "linked")
	folders, err := os.ReadDir(l.peer.remoteDir())
	if err != nil {
		return "", err
	}
	for _, f := range folders {
		if !strings.HasPrefix(f.Name(), topic+"-") {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, f.Name()), 0o755); err != nil {
			return "", err
		}
		files, err := os.ReadDir(filepath.Join(l.peer.remoteDir(), f.Name()))
		if err != nil {
			return "", err
		}
		for _, x := range files {
			name := filepath.Join(f.Name(), x.Name())
			if err := os.Link(filepath.Join(l.peer.remoteDir(), name), filepath.Join(dir, name)); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}
