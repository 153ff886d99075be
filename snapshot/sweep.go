//go:build linux

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/dirlock"
)

// Sweep removes directories that no workspace is mounted from and no session refers to,
// and returns how many. Named returns those of some blobs that sessions refer to. Alive
// reports whether a session exists: what deleted sessions have acquired is released. Sweep
// also removes what dead processes have left unfinished.
func (s *Store) Sweep(ctx context.Context, named func(context.Context, []dormouse.Digest) ([]dormouse.Digest, error), alive func(dormouse.SessionID) (bool, error)) (removed int, err error) {
	removed, err = s.sweep(ctx, named, alive)
	if err != nil {
		return removed, fmt.Errorf("sweep layers: %w", err)
	}
	return removed, nil
}

func (s *Store) sweep(ctx context.Context, named func(context.Context, []dormouse.Digest) ([]dormouse.Digest, error), alive func(dormouse.SessionID) (bool, error)) (int, error) {
	if err := dirlock.Clear(s.path(tempDir)); err != nil {
		return 0, err
	}
	if err := s.releaseDead(ctx, alive); err != nil {
		return 0, err
	}
	if err := s.sweepMerges(); err != nil {
		return 0, err
	}
	unused, err := s.unused()
	if err != nil {
		return 0, err
	}
	const atOnce = 500
	removed := 0
	for some := range slices.Chunk(unused, atOnce) {
		if some, err = s.unreferenced(ctx, some, named); err != nil {
			return removed, err
		}
		n, err := s.remove(some)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// releaseDead releases what deleted sessions have acquired.
func (s *Store) releaseDead(ctx context.Context, alive func(dormouse.SessionID) (bool, error)) error {
	records, err := os.ReadDir(s.path(usesDir))
	if err != nil {
		return err
	}
	lives := make(map[dormouse.SessionID]bool)
	for _, e := range records {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		owner, ok := ownerOf(e.Name())
		if !ok {
			continue
		}
		if _, known := lives[owner]; !known {
			if lives[owner], err = alive(owner); err != nil {
				return fmt.Errorf("look for %s: %w", owner, err)
			}
		}
		if !lives[owner] {
			if err := s.release(e.Name()); err != nil {
				return err
			}
			crash.At(crash.SweepReleased)
		}
	}
	return nil
}

// sweepMerges removes the records of merges that are too old to be used.
func (s *Store) sweepMerges() error {
	records, err := os.ReadDir(s.path(mergesDir))
	if err != nil {
		return err
	}
	for _, e := range records {
		if idle, err := s.idle(e.Info()); err != nil || !idle {
			if err != nil {
				return err
			}
			continue
		}
		if err := os.Remove(s.path(mergesDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// idle reports whether something exists that was touched too long ago.
func (s *Store) idle(info fs.FileInfo, err error) (bool, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && time.Since(info.ModTime()) >= s.opts.Idle, err
}

// unused lists the names of directories that nothing uses, in order.
func (s *Store) unused() ([]string, error) {
	used, err := s.used()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.path(namesDir))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		idle, err := s.idle(e.Info())
		if err != nil {
			return nil, err
		}
		if idle && !used[e.Name()] {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// used returns every directory that a workspace is mounted from or that is pinned.
func (s *Store) used() (map[string]bool, error) {
	used := make(map[string]bool)
	// Pins are read first: a pin is removed after its directories are recorded as used.
	pinned, err := s.pinned()
	if err != nil {
		return nil, err
	}
	for _, name := range pinned {
		used[name] = true
	}
	records, err := os.ReadDir(s.path(usesDir))
	if err != nil {
		return nil, err
	}
	for _, e := range records {
		u, _, err := readRecord[useRecord](s.path(usesDir, e.Name()))
		if err != nil {
			return nil, err
		}
		for _, name := range u.Dirs {
			used[name] = true
		}
	}
	return used, nil
}

// pinned lists the directories that processes have pinned.
func (s *Store) pinned() (names []string, err error) {
	processes, err := os.ReadDir(s.path(tempDir))
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		files, err := os.ReadDir(s.path(tempDir, p.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, f := range files {
			if !strings.HasPrefix(f.Name(), pinPrefix) {
				continue
			}
			raw, err := os.ReadFile(s.path(tempDir, p.Name(), f.Name()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			names = append(names, strings.Split(string(raw), "\n")...)
		}
	}
	return names, nil
}

// unreferenced are those whose blobs no session refers to.
func (s *Store) unreferenced(ctx context.Context, names []string, named func(context.Context, []dormouse.Digest) ([]dormouse.Digest, error)) ([]string, error) {
	blobs := make(map[string]dormouse.Digest)
	var all []dormouse.Digest
	for _, name := range names {
		id, err := s.identity(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if blobs[name] = id.Blob; id.Blob != "" {
			all = append(all, id.Blob)
		}
	}
	wanted, err := named(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("look for references to layers: %w", err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		blob, known := blobs[name]
		return !known || blob != "" && slices.Contains(wanted, blob)
	}), nil
}

// remove removes directories, unless one has come into use in the meantime.
func (s *Store) remove(names []string) (int, error) {
	alone, err := dirlock.Hold(s.opts.Dir, unix.LOCK_EX)
	if err != nil {
		return 0, err
	}
	defer func() { _ = alone.Close() }()
	free, err := s.unused()
	if err != nil {
		return 0, err
	}
	var dirs, nameless []string
	for _, name := range names {
		if _, found := slices.BinarySearch(free, name); !found {
			continue
		}
		there, err := s.exists(name)
		if err != nil {
			return 0, err
		}
		if there {
			dirs = append(dirs, s.path(layersDir, name))
		}
		nameless = append(nameless, s.path(namesDir, name))
	}
	// A name without a directory is harmless; a directory without a name must not exist.
	if err := s.discard(dirs...); err != nil {
		return 0, err
	}
	if len(dirs) > 0 {
		crash.At(crash.SweepDiscarded)
	}
	for _, path := range nameless {
		if err := os.Remove(path); err != nil {
			return len(dirs), err
		}
	}
	return len(dirs), nil
}
