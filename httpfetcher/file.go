package httpfetcher

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// resolveRoots makes the allowed folders absolute, symbolic links resolved. A folder that is not there is an error: it is a typing slip in a list that grants access.
func resolveRoots(roots []string) ([]string, error) {
	var out []string
	for _, r := range roots {
		abs, err := filepath.Abs(r)
		if err != nil {
			return nil, fmt.Errorf("allowed root %q: %w", r, err)
		}
		real, err := filepath.EvalSymlinks(abs)
		if err != nil {
			return nil, fmt.Errorf("allowed root: %w", err)
		}
		out = append(out, real)
	}
	return out, nil
}

// localFile is a path within an allowed root.
type localFile struct{ root, rel string }

// localPath finds the allowed root of a file:// location. Links and dots are resolved first; opening goes through os.Root, so that a link put in place in
// between leads nowhere either.
func (f *Fetcher) localPath(location string) (localFile, error) {
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "file" || (u.Host != "" && u.Host != "localhost") || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) {
		return localFile{}, fmt.Errorf("location is not one that this fetcher opens: %w", remotestorage.ErrUntrusted)
	}
	if len(f.roots) == 0 {
		return localFile{}, fmt.Errorf("file locations: %w", remotestorage.ErrUntrusted)
	}
	real, err := resolve(filepath.Clean(u.Path))
	if err == nil {
		if lf, ok := f.within(real); ok {
			return lf, nil
		}
	}
	return localFile{}, fmt.Errorf("file location outside the allowed roots: %w", remotestorage.ErrUntrusted)
}

// resolve follows symbolic links as far as path exists: a missing file within a root is "not found", anything outside the roots is refused without a word
// on whether it exists.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	dir := filepath.Dir(path)
	if dir == path {
		return "", err
	}
	if dir, err = resolve(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

func (f *Fetcher) within(path string) (localFile, bool) {
	for _, root := range f.roots {
		rel, err := filepath.Rel(root, path)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return localFile{root: root, rel: rel}, true
		}
	}
	return localFile{}, false
}

func (f *Fetcher) openFile(location string, start, end int64) (io.ReadCloser, error) {
	lf, err := f.localPath(location)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(lf.root)
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	defer root.Close() // read only
	// Statted before it is opened: opening a pipe would wait for its writer.
	st, err := root.Stat(lf.rel)
	if err != nil {
		return nil, fileError(lf, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("opening %s: not a file: %w", lf.rel, remotestorage.ErrUntrusted)
	}
	if start >= st.Size() && start != end {
		return nil, fmt.Errorf("opening %s: bytes from %d of %d: %w", lf.rel, start, st.Size(), remotestorage.ErrRange)
	}
	file, err := root.Open(lf.rel)
	if err != nil {
		return nil, fileError(lf, err)
	}
	return &section{SectionReader: io.NewSectionReader(file, start, min(end, st.Size())-start), f: file}, nil
}

func fileError(lf localFile, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("opening %s: %w", lf.rel, remotestorage.ErrNotFound)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("opening %s: %w", lf.rel, remotestorage.ErrDenied)
	}
	return fmt.Errorf("opening %s: %w", lf.rel, err)
}

type section struct {
	*io.SectionReader
	f *os.File
}

func (s *section) Close() error { return s.f.Close() }
