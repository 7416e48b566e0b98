package fileserver

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rewind-kafka/rewind/internal/oncefile"
)

// keySize in bytes. The file holds it in hex, with a newline.
const keySize = 32

// ErrKeyFile: the key file is there and is no key, or others may read it.
var ErrKeyFile = errors.New("bad key file")

// LoadKey reads the key file, and makes it if it is not there. Processes that start together on one file get one key: the file appears under its name whole,
// and the first one to put it there wins.
func LoadKey(path string) ([]byte, error) {
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := makeKey(path); err != nil {
		return nil, fmt.Errorf("making key file: %w", err)
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: mode %#o, others may read it: want 0600: %w", path, st.Mode().Perm(), ErrKeyFile)
	}
	if st.Size() > 1024 {
		return nil, fmt.Errorf("%s: %d bytes: %w", path, st.Size(), ErrKeyFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%s: want %d bytes in hex: %w", path, keySize, ErrKeyFile) // not err: it would repeat a part of the key
	}
	return key, nil
}

func makeKey(path string) (err error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	return oncefile.Make(root, filepath.Base(path), []byte(hex.EncodeToString(key)+"\n"), 0o600)
}
