//go:build linux

package rootfs_test

import (
	"bytes"
	"io"
	"log/slog"
	"runtime"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

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

func readCloser(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

func mkfifo(t testing.TB, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
