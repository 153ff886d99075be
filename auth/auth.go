// Package auth authenticates requests. On one machine there is one user: anyone who
// can read the token file. The token is made on first use, is readable by its owner
// alone, and is sent in a header, never in a URL.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// Principal is the authenticated sender of a request.
type Principal struct {
	Tenant string
	Actor  dormouse.Actor
}

// Local is the one user of a server on one machine. It keeps a hash of the token, so
// that a comparison takes the same time for every guess.
type Local struct{ hash [sha256.Size]byte }

const (
	prefix   = "dmt_"
	bits     = 256
	maxToken = 1024
)

// OpenLocal reads the token at path and makes one if there is none.
func OpenLocal(path string) (*Local, error) {
	token, err := ReadToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		token, err = makeToken(path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("protect token: %w", err)
	}
	return &Local{sha256.Sum256([]byte(token))}, nil
}

// ReadToken returns the token at path, for a client to send.
func ReadToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < len(prefix)+bits/6 || len(token) > maxToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s holds no token; remove it and the next start makes a new one", path)
	}
	return token, nil
}

// makeToken makes a token. If several servers start at once, one of them makes it and
// the others read it.
func makeToken(path string) (token string, err error) {
	b := make([]byte, bits/8)
	_, _ = rand.Read(b) // never fails: it ends the process instead
	token = prefix + base64.RawURLEncoding.EncodeToString(b)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("keep token: %w", err)
	}
	own := path + "-" + rand.Text()
	if err := atomicfile.Write(own, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep token: %w", err)
	}
	err = os.Link(own, path) // unlike a rename, it fails if there is one
	if err := errors.Join(os.Remove(own), atomicfile.SyncDir(dir)); err != nil {
		return "", fmt.Errorf("keep token: %w", err)
	}
	if errors.Is(err, fs.ErrExist) {
		return ReadToken(path)
	}
	if err != nil {
		return "", fmt.Errorf("keep token: %w", err)
	}
	return token, nil
}

// Authenticate returns the principal that an Authorization header proves.
func (l *Local) Authenticate(header string) (Principal, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return Principal{}, false
	}
	return l.Recognize(token)
}

// Recognize returns whose token this is.
func (l *Local) Recognize(token string) (Principal, bool) {
	if len(token) > maxToken {
		return Principal{}, false
	}
	hash := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(hash[:], l.hash[:]) != 1 {
		return Principal{}, false
	}
	return Principal{Tenant: "local", Actor: dormouse.User("local")}, true
}
