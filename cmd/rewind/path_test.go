package main

import (
	"context"
	"testing"
)

// TestEmptyPath: a flag that names a file or a folder never stands for the working directory by being empty.
func TestEmptyPath(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"broker", "--data-dir=", "--listen=127.0.0.1:0"},
		{"broker", "--data-dir", "", "--listen=127.0.0.1:0"},
		{"broker", "--data-dir=d", "--config=", "--listen=127.0.0.1:0"},
		{"store", "--root=", "--key-file=k", "--listen=127.0.0.1:0"},
		{"store", "--root=d", "--key-file=", "--listen=127.0.0.1:0"},
	} {
		if code := run(ctx, args); code != 2 {
			t.Errorf("%q ended with %d, want 2", args, code)
		}
	}
}
