//go:build linux

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// fetch unpacks a layer unless its directory is there. Somebody says durably, or
// as long as this lasts, that the name is in use.
func (s *Store) fetch(ctx context.Context, l dormouse.Layer, name string, came func(int)) error {
	err := s.make(ctx, name, func(dir string) error {
		err := s.read(ctx, l, came, func(tar io.Reader) error { return layer.Unpack(ctx, tar, s.opts.Limits, dir) })
		if err != nil {
			return err
		}
		return layer.Separate(ctx, dir, s.opts.Limits)
	})
	if err != nil {
		return fmt.Errorf("fetch layer %s: %w", l.Digest, refused(layer.Full(err)))
	}
	return nil
}

// make has a directory filled and gives it its name, unless it is there.
func (s *Store) make(ctx context.Context, name string, fill func(dir string) error) error {
	if there, err := s.there(name); there || err != nil {
		return err
	}
	done, err := s.alone(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if there, err := s.there(name); there || err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.temp.Name(), "layer-")
	if err != nil {
		return err
	}
	if err = fill(dir); err == nil {
		err = s.place(dir, name)
	}
	if err != nil {
		return errors.Join(err, beneath.At(dir).Remove())
	}
	return nil
}
