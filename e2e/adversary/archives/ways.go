//go:build linux

package archives

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

// way is how an archive gets in. Strict ones take only what we would have packed,
// shallow ones nothing that lies very deep.
type way struct {
	name            string
	strict, shallow bool
	play            func(ctx context.Context, w *World, raw []byte, l layer.Limits) (dirs []string, got, breach error)
}

var ways = []way{
	{"unpack", true, false, func(ctx context.Context, w *World, raw []byte, l layer.Limits) ([]string, error, error) {
		return w.unpack(ctx, bytes.NewReader(raw), l)
	}},
	{"oci", false, false, func(ctx context.Context, w *World, raw []byte, l layer.Limits) ([]string, error, error) {
		return w.unpackOCI(ctx, bytes.NewReader(raw), l)
	}},
	{"use", true, false, func(ctx context.Context, w *World, raw []byte, l layer.Limits) ([]string, error, error) {
		return w.use(ctx, snapshottest.Zstd(raw), dormouse.DigestOf(raw), l)
	}},
	{"apply", false, true, func(ctx context.Context, w *World, raw []byte, l layer.Limits) ([]string, error, error) {
		return w.apply(ctx, bytes.NewReader(raw), l)
	}},
	{"import", false, false, func(ctx context.Context, w *World, raw []byte, l layer.Limits) ([]string, error, error) {
		return w.load(ctx, new(snapshottest.Image).Add(raw, snapshottest.Gzip).Tar(), l)
	}},
}

// unpack has a layer unpacked from a tar.
func (w *World) unpack(ctx context.Context, from io.Reader, l layer.Limits) (dirs []string, got, breach error) {
	got, breach = w.guard(ctx, l.Bytes+little, func(ctx context.Context) error { return layer.Unpack(ctx, from, l, w.Target) })
	return []string{w.Target}, got, errors.Join(breach, typed(got, layer.ErrMalformed, layer.ErrTooBig, layer.ErrTooMany))
}

// unpackOCI has a layer of an untrusted image unpacked.
func (w *World) unpackOCI(ctx context.Context, from io.Reader, l layer.Limits) (dirs []string, got, breach error) {
	got, breach = w.guard(ctx, l.Bytes+little, func(ctx context.Context) error {
		_, err := layer.UnpackOCI(ctx, from, l, w.Target)
		return err
	})
	return []string{w.Target}, got, errors.Join(breach, typed(got, layer.ErrMalformed, layer.ErrTooBig, layer.ErrTooMany))
}

// apply has a layer of an untrusted image applied to a root file system.
func (w *World) apply(ctx context.Context, from io.Reader, l layer.Limits) (dirs []string, got, breach error) {
	root := filepath.Join(w.Target, "root")
	got, breach = w.guard(ctx, l.Bytes+little, func(ctx context.Context) error {
		r, err := layer.NewRootFS(root, l)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		return r.Apply(ctx, from)
	})
	return []string{root}, got, errors.Join(breach, typed(got, layer.ErrMalformed, layer.ErrTooBig, layer.ErrTooMany))
}

// use has a workspace made of the layer that a blob is.
func (w *World) use(ctx context.Context, packed []byte, id dormouse.Digest, l layer.Limits) (dirs []string, got, breach error) {
	d, err := w.Blobs.Put(ctx, packed)
	if err != nil {
		return nil, nil, err
	}
	return w.useLayer(ctx, dormouse.Layer{Digest: d, DiffID: id, Size: int64(len(packed))}, l)
}

func (w *World) useLayer(ctx context.Context, hostile dormouse.Layer, l layer.Limits) (dirs []string, got, breach error) {
	return w.inStore(ctx, l, func(ctx context.Context, s *snapshot.Store) ([]dormouse.Layer, error) {
		return []dormouse.Layer{hostile}, nil
	})
}

// load has an image imported, and a workspace made of it.
func (w *World) load(ctx context.Context, image []byte, l layer.Limits) (dirs []string, got, breach error) {
	return w.inStore(ctx, l, func(ctx context.Context, s *snapshot.Store) ([]dormouse.Layer, error) {
		return s.Import(ctx, bytes.NewReader(image), layer.Limits{})
	})
}

// inStore stores layers and makes a workspace of them. If that fails, nothing may be
// left.
func (w *World) inStore(ctx context.Context, l layer.Limits, give func(context.Context, *snapshot.Store) ([]dormouse.Layer, error)) (dirs []string, got, breach error) {
	s, err := w.store(l)
	if err != nil {
		return nil, nil, err
	}
	defer func() { breach = errors.Join(breach, s.Close()) }()
	w.attempts++
	number := w.attempts + 1 // the first is in use
	most := l.Bytes + 2*plainMost + little
	got, breach = w.guard(ctx, most, func(ctx context.Context) error {
		layers, err := give(ctx, s)
		if err != nil {
			return err
		}
		dirs, err = s.Acquire(ctx, owner, number, layers, nil)
		return err
	})
	if breach == nil && got != nil {
		breach = w.nothingLeft()
	}
	if err := s.Release(owner, number); err != nil {
		return nil, got, errors.Join(breach, err)
	}
	return dirs, got, errors.Join(breach, typed(got, dormouse.ErrInvalid, dormouse.ErrTooLarge, dormouse.ErrNotFound, blob.ErrCorrupt))
}

// nothingLeft looks for what was not cleared away in the store.
func (w *World) nothingLeft() error {
	left, err := filepath.Glob(filepath.Join(w.home, "store", "tmp", "*", "*"))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left is %q", left)
	}
	info, err := os.Stat(filepath.Join(w.home, "store"))
	if err == nil && info.Mode().Perm() != 0o700 {
		err = fmt.Errorf("others reach the store: %s", info.Mode())
	}
	return err
}

// typed reports whether an error, if there is one, is one that callers know, and
// says nothing to a terminal or a log that is not text.
func typed(err error, known ...error) error {
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(err.Error(), "\n") { // several errors have a line each
		if strings.ContainsFunc(line, unicode.IsControl) || strings.HasPrefix(line, "line") {
			return fmt.Errorf("a name gets into what is said: %q", err.Error())
		}
	}
	for _, k := range known {
		if errors.Is(err, k) {
			return nil
		}
	}
	return fmt.Errorf("nobody knows this error: %w", err)
}
