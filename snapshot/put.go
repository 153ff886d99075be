//go:build linux

package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Put stores the layer in a stage durably, and verifies that it can be read back. It is
// idempotent. On success the stage is consumed. Otherwise the stage still holds the same
// files, but hard links may be broken.
func (s *Store) Put(ctx context.Context, g *Stage) (dormouse.Layer, error) {
	l, err := s.putBlob(ctx, g.Dir)
	if err == nil {
		crash.At(crash.LayerPut)
		err = s.publish(ctx, g, l)
	}
	if err != nil {
		return dormouse.Layer{}, fmt.Errorf("put a layer: %w", layer.Full(err))
	}
	crash.At(crash.LayerKept)
	return l, nil
}

// publish moves the directory of a stage to where it can be mounted from.
func (s *Store) publish(ctx context.Context, g *Stage, l dormouse.Layer) error {
	if err := layer.BreakHardLinks(ctx, g.Dir, s.opts.Limits); err != nil {
		return err
	}
	held, err := dirlock.Hold(s.opts.Dir, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	name, err := s.name(layerIdentity(l))
	if err != nil {
		return err
	}
	if err := s.install(g.Dir, name); err != nil {
		return err
	}
	g.consumed = true
	return nil
}

// putBlob packs a directory into a blob, and reads that back before it is believed.
func (s *Store) putBlob(ctx context.Context, dir string) (l dormouse.Layer, err error) {
	index, skipped, err := layer.Scan(ctx, dir, s.opts.Limits)
	if err != nil {
		return l, err
	}
	if len(skipped) > 0 {
		return l, fmt.Errorf("%.200q is nothing that a layer carries", skipped[0].Path)
	}
	l.Entries, l.Bytes, l.Paths = measure(index)
	crash.At(crash.LayerPacking)
	if l.Bytes+int64(l.Entries)*perEntry <= inMemory {
		err = s.putSmall(ctx, dir, index, &l)
	} else {
		err = s.putLarge(ctx, dir, index, &l)
	}
	if err != nil {
		return l, err
	}
	if err := s.read(ctx, l, nil, func(tar io.Reader) error { return layer.Verify(ctx, tar, s.opts.Limits) }); err != nil {
		return l, fmt.Errorf("verify %s: %w", l.Digest, err)
	}
	return l, nil
}

// measure counts what is in a layer. A file with several hard links counts once.
func measure(index layer.Index) (entries int, size, paths int64) {
	seen := make(map[uint64]bool)
	for _, e := range index {
		if e.Path == "." {
			continue
		}
		entries++
		paths += int64(len(e.Path))
		if e.Kind != layer.File || seen[e.Inode] {
			continue
		}
		size += e.Size
		if e.Links > 1 {
			seen[e.Inode] = true
		}
	}
	return entries, size, paths
}

// Layers up to this size are packed in memory before they are put: most turns change a
// few small files.
const (
	inMemory = 1 << 20
	perEntry = 2 << 10
)

func (s *Store) putSmall(ctx context.Context, dir string, index layer.Index, l *dormouse.Layer) error {
	var b bytes.Buffer
	var err error
	if l.DiffID, err = s.pack(ctx, dir, index, &b); err != nil {
		return err
	}
	l.Size = int64(b.Len())
	l.Digest, err = s.opts.Blobs.Put(ctx, b.Bytes())
	return err
}

func (s *Store) putLarge(ctx context.Context, dir string, index layer.Index, l *dormouse.Layer) error {
	from, to := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		var err error
		l.DiffID, err = s.pack(ctx, dir, index, to)
		_ = to.CloseWithError(err) // it never fails
	}()
	d, n, err := s.opts.Blobs.PutFrom(ctx, from)
	_ = from.CloseWithError(err) // it never fails
	<-packed
	l.Digest, l.Size = d, n
	return err
}
