package aiven

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rsa"
	"crypto/sha3"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// ErrKey: a segment is encrypted, and the key for it is not among Options.Keys, or is another one. It is an ErrDenied too.
var ErrKey error = keyError{}

type keyError struct{}

func (keyError) Error() string { return "no private key that opens the segment" }

func (keyError) Unwrap() error { return remotestorage.ErrDenied }

const (
	maxKeyFile  = 64 << 10
	dataKeySize = 32
	nonceSize   = 12
	tagSize     = 16
	sealSize    = nonceSize + tagSize // what encryption adds to a chunk
)

// LoadKey reads an RSA private key from a PEM file, PKCS#8 or PKCS#1: what the plug-in's encryption.key.pairs.<id>.private.key.file names.
func LoadKey(path string) (*rsa.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	key, err := parseKey(b)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", path, err)
	}
	return key, nil
}

func parseKey(b []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("not a PEM file")
	}
	switch block.Type {
	case "PRIVATE KEY":
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		r, ok := key.(*rsa.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("a %T, want RSA", key)
		}
		return r, nil
	case "RSA PRIVATE KEY":
		if block.Headers["DEK-Info"] != "" {
			return nil, errors.New("protected by a password: decrypt it with openssl pkey first")
		}
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("protected by a password: decrypt it with openssl pkey first")
	}
	return nil, fmt.Errorf("PEM block %q, want PRIVATE KEY", block.Type)
}

// wrappedKey is a segment's data key as the manifest has it: <key id>:<base64 of what RSA made of it>.
type wrappedKey struct {
	id         string
	ciphertext []byte
}

func parseWrappedKey(s string) (wrappedKey, error) {
	id, text, ok := strings.Cut(s, ":")
	if !ok || id == "" || text == "" {
		return wrappedKey{}, errors.New("data key is not of the form id:base64")
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return wrappedKey{}, fmt.Errorf("data key: %w", err)
	}
	return wrappedKey{id: id, ciphertext: b}, nil
}

// open gives the cipher of a segment.
func (w *wrappedKey) open(keys map[string]*rsa.PrivateKey) (cipher.AEAD, error) {
	key, ok := keys[w.id]
	if !ok {
		return nil, fmt.Errorf("%w: it was encrypted with key %q, which is not configured: add the private key file that the plug-in's encryption.key.pairs.%s names", ErrKey, w.id, w.id)
	}
	data, err := rsa.DecryptOAEP(sha3.New512(), nil, key, w.ciphertext, nil)
	if err != nil || len(data) != dataKeySize {
		return nil, fmt.Errorf("%w: the private key configured as %q is not the one that the plug-in has under this id, or the manifest is damaged", ErrKey, w.id)
	}
	block, err := aes.NewCipher(data)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
