//go:build linux

package layertest

import (
	"archive/tar"
	"bytes"
	"io"
	"path/filepath"
	"testing"
	"time"
)

// When is the time of entries that have none of their own.
var When = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

// Tar writes a layer with files of any content.
type Tar struct {
	t   testing.TB
	buf bytes.Buffer
	w   *tar.Writer
}

// NewTar begins one.
func NewTar(t testing.TB) *Tar {
	t.Helper()
	l := &Tar{t: t}
	l.w = tar.NewWriter(&l.buf)
	return l
}

// Add adds an entry without content.
func (l *Tar) Add(h tar.Header) *Tar { return l.Put(h, "") }

// File adds a file.
func (l *Tar) File(name, text string) *Tar {
	return l.Put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}, text)
}

// Put adds an entry and its content.
func (l *Tar) Put(h tar.Header, text string) *Tar {
	l.t.Helper()
	if h.ModTime.IsZero() {
		h.ModTime = When
	}
	must(l.t, l.w.WriteHeader(&h))
	_, err := io.WriteString(l.w, text)
	must(l.t, err)
	return l
}

// Len is how long it is so far.
func (l *Tar) Len() int { return l.buf.Len() }

// Bytes is the whole tar. Nothing may be added after that.
func (l *Tar) Bytes() []byte {
	l.t.Helper()
	must(l.t, l.w.Close())
	return l.buf.Bytes()
}

// Whiteout is the whiteout of a name.
func Whiteout(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name))}
}
