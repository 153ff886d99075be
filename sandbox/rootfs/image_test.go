//go:build linux

package rootfs_test

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

// when is the time of everything in the tests' images.
var when = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

func dir(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
}

func file(name, text string) (tar.Header, string) {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}, text
}

func symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
}

func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o644}
}

// gone is a whiteout.
func gone(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name))}
}

// layerTar is a layer in the making.
type layerTar struct {
	t   testing.TB
	buf bytes.Buffer
	w   *tar.Writer
}

func newLayer(t testing.TB) *layerTar {
	t.Helper()
	l := &layerTar{t: t}
	l.w = tar.NewWriter(&l.buf)
	return l
}

func (l *layerTar) add(h tar.Header) *layerTar { return l.put(h, "") }

func (l *layerTar) file(name, text string) *layerTar { return l.put(file(name, text)) }

func (l *layerTar) put(h tar.Header, text string) *layerTar {
	l.t.Helper()
	if h.ModTime.IsZero() {
		h.ModTime = when
	}
	if err := l.w.WriteHeader(&h); err != nil {
		l.t.Fatal(err)
	}
	if _, err := io.WriteString(l.w, text); err != nil {
		l.t.Fatal(err)
	}
	return l
}

func (l *layerTar) bytes() []byte {
	l.t.Helper()
	if err := l.w.Close(); err != nil {
		l.t.Fatal(err)
	}
	return l.buf.Bytes()
}

// gzipped is a tar as a layer compressed in the usual way.
func gzipped(t testing.TB, raw []byte) v1.Layer {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// stored is a layer of exactly these bytes, which unpack to plain.
type stored struct {
	v1.Layer
	plain []byte
}

func (s stored) DiffID() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(s.plain))
	return h, err
}

func storedAs(raw, plain []byte, kind types.MediaType) v1.Layer {
	return stored{static.NewLayer(raw, kind), plain}
}

func zstdOf(t testing.TB, raw []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(raw, nil)
}

// imageOf is an image of layers for this machine.
func imageOf(t testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	im, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := im.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", runtime.GOARCH, config
	if im, err = mutate.ConfigFile(im, c); err != nil {
		t.Fatal(err)
	}
	return im
}

func digestOf(t testing.TB, im v1.Image) string {
	t.Helper()
	d, err := im.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func openStore(t testing.TB, opts rootfs.Options) *rootfs.Store {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	s, err := rootfs.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// logTo is a logger whose lines can be looked at.
func logTo(b *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// list describes a tree, one line for each name, in order.
func list(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			name += "/"
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			name += " -> " + to
		case e.Type().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name += " = " + string(text)
		default:
			name += " ? " + e.Type().String()
		}
		found = append(found, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantTree compares a tree with its description, given as lines.
func wantTree(t testing.TB, dir, want string) {
	t.Helper()
	got := list(t, dir)
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(got)
	slices.Sort(lines)
	if !slices.Equal(got, lines) {
		t.Errorf("tree:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func readCloser(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

func mkfifo(t testing.TB, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
