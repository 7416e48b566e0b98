package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"gocloud.dev/blob/driver"
)

const defaultPage = 5000

func readDir(root *os.Root, dir string) ([]fs.DirEntry, error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	return entries, errors.Join(err, f.Close())
}

// ListPaged lists in the order of whole keys. The page token is the last key given.
func (d *directory) ListPaged(ctx context.Context, o *driver.ListOptions) (*driver.ListPage, error) {
	if o.Delimiter != "" && o.Delimiter != "/" {
		return nil, errUnsupported
	}
	if o.BeforeList != nil {
		if err := o.BeforeList(func(any) bool { return false }); err != nil {
			return nil, err
		}
	}
	t, err := d.tree()
	if err != nil {
		return nil, err
	}
	l := &listing{ctx: ctx, root: t.root, o: o, after: string(o.PageToken), most: o.PageSize}
	if l.most == 0 {
		l.most = defaultPage
	}
	dir, _ := path.Split(o.Prefix)
	if dir != "" && !fs.ValidPath(strings.TrimSuffix(dir, "/")) {
		return &driver.ListPage{}, nil // no key is like that
	}
	if err := l.walk(dir); err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	page := &driver.ListPage{Objects: l.objects}
	if len(l.objects) > l.most {
		page.Objects = l.objects[:l.most]
		page.NextPageToken = []byte(page.Objects[l.most-1].Key)
	}
	return page, nil
}

var errFull = errors.New("page is full")

type listing struct {
	ctx     context.Context
	root    *os.Root
	o       *driver.ListOptions
	after   string
	most    int
	objects []*driver.ListObject
}

// walk goes through one folder; dir is "" or ends in a slash.
func (l *listing) walk(dir string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	entries, err := readDir(l.root, path.Clean(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		if n := e.Name(); n[0] != '.' && (e.IsDir() || e.Type().IsRegular()) {
			if e.IsDir() {
				n += "/"
			}
			keys = append(keys, dir+n)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := l.add(key); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) add(key string) error {
	folder := strings.HasSuffix(key, "/")
	if folder && l.o.Delimiter == "" {
		if !strings.HasPrefix(key, l.o.Prefix) && !strings.HasPrefix(l.o.Prefix, key) {
			return nil
		}
		if key < l.after && !strings.HasPrefix(l.after, key) {
			return nil // all of it lies before the page
		}
		return l.walk(key)
	}
	if !strings.HasPrefix(key, l.o.Prefix) || key <= l.after {
		return nil
	}
	if len(l.objects) > l.most {
		return errFull
	}
	o := &driver.ListObject{Key: key, IsDir: folder, AsFunc: func(any) bool { return false }}
	if !folder {
		st, err := l.root.Stat(key)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err != nil {
			return err
		}
		o.Size, o.ModTime = st.Size(), st.ModTime()
	}
	l.objects = append(l.objects, o)
	return nil
}
