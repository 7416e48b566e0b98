package storedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rewind-kafka/rewind/internal/oncefile"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// MarkerName is the file in the store's directory that holds its id: Kafka's Uuid text and a newline, as the file with the remembered id does. The dot keeps it
// out of listings.
const MarkerName = ".rewind-store-id"

// maxMarker bounds what is read of a file that may be anything.
const maxMarker = 64

var errMarker = errors.New("not a store's id")

// readMarker gives the id of a directory; "" if it has none.
func readMarker(root *os.Root) (string, error) {
	f, err := root.Open(MarkerName)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	id, err := readID(f)
	return id, errors.Join(err, f.Close())
}

// remembered gives the id in the file of it; "" if there is none.
func (d *Dir) remembered() (string, error) {
	if d.o.IDFile == "" {
		return "", nil
	}
	f, err := os.Open(d.o.IDFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the store's id: %w", err)
	}
	id, err := readID(f)
	return id, errors.Join(err, f.Close())
}

func readID(f *os.File) (string, error) {
	b, err := io.ReadAll(io.LimitReader(f, maxMarker+1))
	if err != nil {
		return "", err
	}
	id := strings.TrimSuffix(string(b), "\n")
	if _, err := remotestorage.ParseUUID(id); err != nil || len(b) > maxMarker {
		return "", fmt.Errorf("%s holds %.30q: %w", f.Name(), b, errMarker)
	}
	return id, nil
}

// remember gives the directory an id if it has none, and writes the id down in idFile: in this order, since a directory whose id is remembered is never given one.
func remember(dir, idFile string) (id string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := makeID(root, MarkerName, remotestorage.RandomUUID().String()); err != nil {
		return "", err
	}
	if id, err = readMarker(root); err != nil { // perhaps another broker's, that begins with this store at the same time
		return "", err
	}
	if err := makeDir(filepath.Dir(idFile)); err != nil {
		return "", err
	}
	data, err := os.OpenRoot(filepath.Dir(idFile))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	return id, makeID(data, filepath.Base(idFile), id)
}

func makeID(root *os.Root, name, id string) error {
	return oncefile.Make(root, name, []byte(id+"\n"), 0o644)
}

// makeDir makes a directory with what is missing above it, each synced into its parent.
func makeDir(dir string) error {
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	d, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
