// Package fileserver lets a directory sign its objects' locations as object stores do: a Signer makes URLs that open one object until they expire, and a
// Handler serves them. The broker (and the demonstration's store process) imports it. It starts no goroutines and writes nothing to a log.
//
// A URL is base + "/" + object name + "?expires=<epoch ms>&method=<GET or HEAD>&signature=<base64>"; the signature is HMAC-SHA-256 over a version line,
// the method, the name and the expiry. It opens one object with one method, whole or in ranges.
package fileserver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rewind-kafka/rewind/internal/storedir"
)

const (
	paramExpires   = "expires"
	paramMethod    = "method"
	paramSignature = "signature"

	version = "rewind-location-1"
)

// Signer makes and checks signatures.
type Signer struct {
	key  []byte
	base *url.URL
	now  func() time.Time
}

// NewSigner takes the key and the URL under which clients reach the Handler (http.advertised.listener): scheme, host, and a path or none. now nil is time.Now.
func NewSigner(key []byte, base *url.URL, now func() time.Time) (*Signer, error) {
	if len(key) < keySize {
		return nil, fmt.Errorf("signing key of %d bytes, want %d", len(key), keySize)
	}
	if base == nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("base of signed locations: want http://host:port or https://host:port, with a path or none")
	}
	b := *base
	b.Path, b.RawPath = strings.TrimSuffix(b.Path, "/"), ""
	if now == nil {
		now = time.Now
	}
	return &Signer{key: append([]byte(nil), key...), base: &b, now: now}, nil
}

// Sign makes a URL for GET; its form is that of bucket.Store's Sign.
func (s *Signer) Sign(_ context.Context, name string, expiry time.Duration) (string, time.Time, error) {
	return s.SignMethod(http.MethodGet, name, expiry)
}

// SignMethod makes a URL for GET or HEAD.
func (s *Signer) SignMethod(method, name string, expiry time.Duration) (string, time.Time, error) {
	if method != http.MethodGet && method != http.MethodHead {
		return "", time.Time{}, fmt.Errorf("signing method %s: only GET and HEAD are served", method)
	}
	if !fs.ValidPath(name) || name == "." {
		return "", time.Time{}, fmt.Errorf("signing %q: not an object's name", name)
	}
	until := s.now().Add(expiry).Truncate(time.Millisecond)
	expires := strconv.FormatInt(until.UnixMilli(), 10)
	u := *s.base
	u.Path += "/" + name
	u.RawQuery = paramExpires + "=" + expires + "&" + paramMethod + "=" + method + "&" + paramSignature + "=" +
		base64.RawURLEncoding.EncodeToString(s.mac(method, name, expires))
	return u.String(), until, nil
}

func (s *Signer) mac(method, name, expires string) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(version + "\n" + method + "\n" + expires + "\n" + name))
	return h.Sum(nil)
}

// check tells whether r was signed and still holds.
func (s *Signer) check(r *http.Request, name string) bool {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(q) != 3 || len(q[paramExpires]) != 1 || len(q[paramMethod]) != 1 || len(q[paramSignature]) != 1 {
		return false
	}
	got, err := base64.RawURLEncoding.DecodeString(q.Get(paramSignature))
	if err != nil || q.Get(paramMethod) != r.Method {
		return false
	}
	if !hmac.Equal(got, s.mac(r.Method, name, q.Get(paramExpires))) {
		return false
	}
	ms, err := strconv.ParseInt(q.Get(paramExpires), 10, 64)
	return err == nil && s.now().UnixMilli() < ms
}

// Handler serves signed URLs on a directory.
type Handler struct {
	signer *Signer
	dir    *storedir.Dir
}

// NewHandler serves what lies in the directory at path. Where idFile, if it is not empty, names a file, that holds the id of the directory that belongs there: it
// is what the broker remembers of its store. While no directory or another one is there, every signed request gets status 503. Close closes the directory.
func NewHandler(path, idFile string, s *Signer) (*Handler, error) {
	dir, err := storedir.Open(path, storedir.Options{IDFile: idFile, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("the directory to be served: %w", err)
	}
	return &Handler{s, dir}, nil
}

// Check tells whether the directory is there.
func (h *Handler) Check() error {
	_, err := h.dir.Root()
	return err
}

// Close closes the directory; files that are being served stay open until they are done.
func (h *Handler) Close() error { return h.dir.Close() }

// ServeHTTP answers a GET with its ranges, and a HEAD that was signed as one. Everything that was not signed is 403, whether it exists or not.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, h.signer.base.Path+"/")
	if !ok || !fs.ValidPath(name) || name == "." || !h.signer.check(r, name) {
		http.Error(w, "signature is missing, wrong or expired", http.StatusForbidden)
		return
	}
	h.serve(w, r, name)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, name string) {
	root, err := h.dir.Root()
	if err != nil {
		away(w)
		return
	}
	if hidden(name) {
		http.Error(w, noSuchObject, http.StatusNotFound)
		return
	}
	f, st, err := open(root, name)
	if err != nil {
		h.refuse(w, root, err)
		return
	}
	defer f.Close() // read only
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "private, no-transform")
	w.Header().Set("ETag", fmt.Sprintf("\"%x-%x\"", st.ModTime().UnixNano(), st.Size()))
	http.ServeContent(w, r, "", st.ModTime(), f)
}

// hidden are names of which no part of a store's layout is made: the directory's id, and files that are being written.
func hidden(name string) bool { return name[0] == '.' || strings.Contains(name, "/.") }

// open stats before it opens: opening a pipe would wait for its writer. The root keeps links from leading out of the directory.
func open(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	st, err := root.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if st, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}

const noSuchObject = "no such object"

// refuse answers without the system's words, which may name paths. That there is no such object is said only of the store itself, of which something was learned:
// clients take it for final, and what lies in an unmounted store is not gone.
func (h *Handler) refuse(w http.ResponseWriter, root *os.Root, err error) {
	now, lost := h.dir.Root()
	var errno syscall.Errno
	switch {
	case lost != nil || now != root || errors.Is(err, fs.ErrClosed):
		away(w)
	case errors.Is(err, fs.ErrPermission):
		http.Error(w, "cannot be read", http.StatusInternalServerError)
	case errors.As(err, &errno) && !slices.Contains(noSuchPath, errno):
		away(w)
	default:
		http.Error(w, noSuchObject, http.StatusNotFound)
	}
}

// noSuchPath are the system's errors that speak of the name; others speak of the disk.
var noSuchPath = []syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EILSEQ}

// away is a status after which clients try again, or ask the broker.
func away(w http.ResponseWriter) {
	http.Error(w, "the store's directory is away", http.StatusServiceUnavailable)
}

// NewServer is an http.Server with limits for a handler that faces clients. WriteTimeout stays unset: a range takes as long as its reader.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}
