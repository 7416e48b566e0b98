package storedir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	if id, err = readMarker(root); err != nil {
		return "", err
	}
	if id == "" {
		if err := writeID(root, MarkerName, remotestorage.RandomUUID().String()); err != nil {
			return "", err
		}
		if id, err = readMarker(root); err != nil { // perhaps another broker's, that begins with this store at the same time
			return "", err
		}
	}
	// Also if it was there already: its writer may have been cut off just before.
	if err := syncDir(root); err != nil {
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
	return id, errors.Join(writeID(data, filepath.Base(idFile), id), syncDir(data))
}

// writeID puts a file under its name whole, unless one is there. Its directory is still to be synced.
func writeID(root *os.Root, name, id string) error {
	temp := "." + strings.TrimPrefix(name, ".") + "." + rand.Text()[:10] + ".tmp"
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(id + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	if err := root.Link(temp, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return root.Rename(temp, name) // a file system without links: of two who write at the same time the last one wins
	}
	return root.Remove(temp)
}

func syncDir(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
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
