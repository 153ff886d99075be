package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/dirlock"
)

var _ blob.Collectable = (*Store)(nil)

// Each calls f with every blob that was last put before a time.
func (s *Store) Each(ctx context.Context, before time.Time, f func(dormouse.Digest) error) error {
	for i := range shards {
		entries, err := os.ReadDir(s.shard(i))
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		for _, e := range entries {
			if err := context.Cause(ctx); err != nil {
				return fmt.Errorf("list blobs: %w", err)
			}
			d := dormouse.Digest("sha256:" + e.Name())
			old, err := older(e.Info, before)
			if err != nil {
				return fmt.Errorf("list blobs: %w", err)
			}
			if !old || d.Validate() != nil {
				continue
			}
			if err := f(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// Collect deletes d unless it was put at or after a time.
func (s *Store) Collect(ctx context.Context, d dormouse.Digest, before time.Time) (bool, error) {
	if err := context.Cause(ctx); err != nil {
		return false, fmt.Errorf("collect %s: %w", d, err)
	}
	collected, err := s.collect(d, before)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("collect %s: %w", d, err)
	}
	return collected, nil
}

// collect checks and removes a blob while no put is in progress.
func (s *Store) collect(d dormouse.Digest, before time.Time) (bool, error) {
	if err := d.Validate(); err != nil {
		return false, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	path := s.path(d)
	held, err := dirlock.Hold(filepath.Dir(path), syscall.LOCK_EX)
	if err != nil {
		return false, err
	}
	defer closeRead(held)
	old, err := older(func() (fs.FileInfo, error) { return os.Stat(path) }, before)
	if !old || err != nil {
		return false, err
	}
	err = os.Remove(path)
	return err == nil, err
}

// older reports whether a file exists and was last put, which is its modification time,
// before a time.
func older(stat func() (fs.FileInfo, error), before time.Time) (bool, error) {
	info, err := stat()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.ModTime().Before(before), err
}
