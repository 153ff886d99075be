//go:build linux

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// fetch unpacks a layer unless its directory exists. The caller has pinned the name, or
// recorded that it is in use.
func (s *Store) fetch(ctx context.Context, l dormouse.Layer, name string, came func(int)) error {
	err := s.build(ctx, name, func(dir string) error {
		err := s.read(ctx, l, came, func(tar io.Reader) error { return layer.Unpack(ctx, tar, s.opts.Limits, dir) })
		if err != nil {
			return err
		}
		return layer.BreakHardLinks(ctx, dir, s.opts.Limits)
	})
	if err != nil {
		return fmt.Errorf("fetch layer %s: %w", l.Digest, asInvalid(layer.Full(err)))
	}
	return nil
}

// Check returns nil if the blob of each layer exists and has its recorded size, so that
// the layers can be fetched when their directories are lost. It does not read them:
// corrupt bytes are found by the digest when they are fetched.
func (s *Store) Check(ctx context.Context, layers []dormouse.Layer) error {
	for _, l := range layers {
		if err := s.check(ctx, l); err != nil {
			return fmt.Errorf("check layer %s: %w", l.Digest, err)
		}
	}
	return nil
}

func (s *Store) check(ctx context.Context, l dormouse.Layer) error {
	packed, size, err := s.opts.Blobs.Open(ctx, l.Digest)
	if err != nil {
		return err
	}
	defer func() { _ = packed.Close() }()
	if size != l.Size {
		return fmt.Errorf("%w: it has %d bytes, not %d", blob.ErrCorrupt, size, l.Size)
	}
	return nil
}

// build fills a directory and gives it its name, unless it exists.
func (s *Store) build(ctx context.Context, name string, fill func(dir string) error) error {
	if there, err := s.exists(name); there || err != nil {
		return err
	}
	done, err := s.singleFlight(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if there, err := s.exists(name); there || err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.temp.Name(), "layer-")
	if err != nil {
		return err
	}
	if err = fill(dir); err == nil {
		err = s.install(dir, name)
	}
	if err != nil {
		return errors.Join(err, beneath.At(dir).Remove())
	}
	return nil
}
