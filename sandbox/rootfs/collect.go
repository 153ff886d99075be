//go:build linux

package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Collect removes the images for whose digest keep returns false, except those that were
// returned within the last hour: their use may not be recorded yet.
func (s *Store) Collect(ctx context.Context, keep func(digest string) bool) error {
	entries, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		return fmt.Errorf("collect images: %w", err)
	}
	var failed error
	for _, e := range entries {
		if ctx.Err() != nil {
			return fmt.Errorf("collect images: %w", context.Cause(ctx))
		}
		algorithm, hex, _ := strings.Cut(e.Name(), "-")
		digest, err := v1.NewHash(algorithm + ":" + hex)
		if err != nil || !e.IsDir() || keep(digest.String()) {
			continue
		}
		if err := s.remove(ctx, digest); err != nil {
			failed = errors.Join(failed, fmt.Errorf("collect image %s: %w", digest, err))
		}
	}
	return errors.Join(failed, s.expireRefs())
}

// remove removes an image atomically.
func (s *Store) remove(ctx context.Context, digest v1.Hash) error {
	name := fileName(digest)
	unlock, err := lock(ctx, s.lockFile(name))
	if err != nil {
		return err
	}
	defer unlock()
	tmp := filepath.Join(s.opts.Dir, newPrefix+name)
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	took, err := s.detach(digest, tmp)
	if err != nil || !took {
		return err
	}
	s.log.InfoContext(ctx, "image removed", "digest", digest.String())
	return os.RemoveAll(tmp)
}

// detach moves an image away, unless it was returned to a caller a short while ago.
func (s *Store) detach(digest v1.Hash, to string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(s.opts.Dir, fileName(digest))
	at, err := os.Stat(dir)
	if err != nil {
		return false, ignoreNotExist(err)
	}
	if s.now().Sub(at.ModTime()) < gracePeriod {
		return false, nil
	}
	if err := os.Rename(dir, to); err != nil {
		return false, ignoreNotExist(err)
	}
	return true, nil
}

// sweep removes what killed processes have left. Files that are locked are still being
// made.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), newPrefix)
		if !ok {
			if name, ok = strings.CutPrefix(e.Name(), lockPrefix); !ok {
				continue
			}
		}
		unlock, err := tryLock(s.lockFile(name))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return err
		}
		err = os.RemoveAll(filepath.Join(s.opts.Dir, newPrefix+name))
		unlock()
		if err != nil {
			return err
		}
	}
	return s.sweepRefs()
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
