//go:build linux

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// useRecord says which directories a workspace is mounted from.
type useRecord struct {
	Layers []dormouse.Digest `json:"layers"` // the DiffIDs
	Dirs   []string          `json:"dirs"`   // names in layers, the lowest first
}

// Acquire returns the directories to mount layers from, the lowest first, at most
// MaxMounted and all in one directory. It fetches those that are missing, and tells
// progress, which may be nil, how many bytes of how many were read. The directories stay
// until the owner releases the number. Acquiring the same number again returns the same
// directories as long as they exist.
func (s *Store) Acquire(ctx context.Context, owner dormouse.SessionID, number uint64, layers []dormouse.Layer, progress func(done, total int64)) ([]string, error) {
	dirs, err := s.acquire(ctx, owner, number, layers, progress)
	if err != nil {
		return nil, fmt.Errorf("acquire %d layers for %s: %w", len(layers), owner, layer.Full(err))
	}
	for i, name := range dirs {
		dirs[i] = s.path(layersDir, name)
	}
	return dirs, nil
}

func (s *Store) acquire(ctx context.Context, owner dormouse.SessionID, number uint64, layers []dormouse.Layer, progress func(done, total int64)) ([]string, error) {
	if err := owner.Validate(); err != nil {
		return nil, err
	}
	if err := validate(layers); err != nil {
		return nil, err
	}
	layers = dedupe(layers)
	record := useName(owner, number)
	if dirs, err := s.reuse(record, layers); err != nil || dirs != nil {
		return dirs, err
	}
	merged := excess(len(layers))
	names, unpin, err := s.pin(layers, layers[:merged])
	if err != nil {
		return nil, err
	}
	defer unpin()
	if err := s.fetchAll(ctx, layers, names, progress); err != nil {
		return nil, err
	}
	dirs := names[:len(layers)]
	if merged > 0 {
		below, to := dirs[:merged], names[len(layers)]
		err := s.build(ctx, to, func(dir string) error {
			// Each layer was within the limits; all of them together need not be. Their hard
			// links are broken already.
			return layer.Merge(ctx, s.paths(below), layer.Unlimited, dir)
		})
		if err != nil {
			return nil, err
		}
		dirs = append([]string{to}, dirs[merged:]...)
	}
	raw, err := json.Marshal(useRecord{Layers: diffIDs(layers), Dirs: dirs})
	if err != nil {
		return nil, err
	}
	return dirs, atomicfile.File{Path: s.path(usesDir, record), Perm: 0o600, Temp: s.temp.Name()}.Write(raw)
}

// mergeStep is the granularity of what is merged for a mount, so that a longer chain can
// use what was merged for a shorter one.
const mergeStep = MaxMounted / 2

// excess is how many of the lowest layers of a chain must be merged into one directory.
func excess(layers int) int {
	if layers <= MaxMounted {
		return 0
	}
	over := layers - MaxMounted + 1
	return (over + mergeStep - 1) / mergeStep * mergeStep
}

// dedupe drops layers that occur again higher in the chain: overlayfs refuses to mount a
// directory twice, and the higher one adds or hides the same again.
func dedupe(layers []dormouse.Layer) []dormouse.Layer {
	seen := make(map[dormouse.Digest]bool)
	var out []dormouse.Layer
	for _, l := range slices.Backward(layers) {
		if !seen[l.DiffID] {
			seen[l.DiffID] = true
			out = append(out, l)
		}
	}
	slices.Reverse(out)
	return out
}

func validate(layers []dormouse.Layer) error {
	for _, l := range layers {
		if err := errors.Join(l.Digest.Validate(), l.DiffID.Validate()); err != nil {
			return err
		}
	}
	return nil
}

func diffIDs(layers []dormouse.Layer) []dormouse.Digest {
	all := make([]dormouse.Digest, len(layers))
	for i, l := range layers {
		all[i] = l.DiffID
	}
	return all
}

func (s *Store) paths(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = s.path(layersDir, name)
	}
	return all
}

func useName(owner dormouse.SessionID, number uint64) string {
	return string(owner) + "-" + strconv.FormatUint(number, 10)
}

// reuse returns the directories of a record, if they still exist and are for the same
// layers. Other directories would not do, even with the same content: overlayfs tells
// them apart.
func (s *Store) reuse(record string, layers []dormouse.Layer) ([]string, error) {
	u, found, err := readRecord[useRecord](s.path(usesDir, record))
	if err != nil || !found || !slices.Equal(u.Layers, diffIDs(layers)) {
		return nil, err
	}
	for _, name := range u.Dirs {
		if there, err := s.exists(name); !there {
			return nil, err
		}
	}
	return u.Dirs, nil
}

// readRecord reads a record, if there is one. One that cannot be decoded was written by
// another program or corrupted in a crash, and counts as none.
func readRecord[T any](path string) (record T, found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return record, false, nil
	}
	if err != nil {
		return record, false, err
	}
	return record, json.Unmarshal(raw, &record) == nil, nil
}

// fetchAll fetches the layers whose directories are missing.
func (s *Store) fetchAll(ctx context.Context, layers []dormouse.Layer, names []string, progress func(done, total int64)) error {
	var done, total int64
	missing := make(map[int]bool)
	for i, l := range layers {
		there, err := s.exists(names[i])
		if err != nil {
			return err
		}
		if !there {
			missing[i] = true
			total += l.Size
		}
	}
	for i, l := range layers {
		if !missing[i] {
			continue
		}
		err := s.fetch(ctx, l, names[i], func(n int) {
			if done += int64(n); progress != nil {
				progress(min(done, total), total)
			}
		})
		if err != nil {
			return err
		}
	}
	if progress != nil && done < total {
		progress(total, total) // others have fetched the rest
	}
	return nil
}

// pin names the directories of layers, and last the one that those at the bottom are
// merged into, and protects all of them from being swept.
func (s *Store) pin(layers, merged []dormouse.Layer) (names []string, unpin func(), err error) {
	held, err := dirlock.Hold(s.opts.Dir, unix.LOCK_SH)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = held.Close() }()
	ids := make([]identity, 0, len(layers)+1)
	for _, l := range layers {
		ids = append(ids, layerIdentity(l))
	}
	if len(merged) > 0 {
		ids = append(ids, mergedIdentity(merged))
	}
	for _, id := range ids {
		name, err := s.name(id)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, name)
	}
	f, err := os.CreateTemp(s.temp.Name(), pinPrefix)
	if err != nil {
		return nil, nil, err
	}
	unpin = func() { _ = os.Remove(f.Name()) } // one that stays does no harm, and goes with this process
	_, err = f.WriteString(strings.Join(names, "\n"))
	if err = errors.Join(err, f.Close()); err != nil {
		unpin()
		return nil, nil, err
	}
	return names, unpin, nil
}

// pinPrefix begins the names of pin files. They count as long as their process lives.
const pinPrefix = "pin-"

// Release releases what an owner acquired under a number. It is idempotent. After a crash
// it may have to be repeated.
func (s *Store) Release(owner dormouse.SessionID, number uint64) error {
	if err := owner.Validate(); err != nil {
		return fmt.Errorf("release layers: %w", err)
	}
	return s.release(useName(owner, number))
}

func (s *Store) release(record string) error {
	if err := os.Remove(s.path(usesDir, record)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release layers: %w", err)
	}
	return nil
}

// ReleaseAll releases everything that an owner acquired.
func (s *Store) ReleaseAll(owner dormouse.SessionID) error {
	records, err := os.ReadDir(s.path(usesDir))
	if err != nil {
		return fmt.Errorf("release layers: %w", err)
	}
	for _, e := range records {
		if of, ok := ownerOf(e.Name()); ok && of == owner {
			if err := s.release(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownerOf returns the session that a record belongs to.
func ownerOf(record string) (dormouse.SessionID, bool) {
	i := strings.LastIndexByte(record, '-')
	if i < 0 {
		return "", false
	}
	_, err := strconv.ParseUint(record[i+1:], 10, 64)
	owner := dormouse.SessionID(record[:i])
	return owner, err == nil && owner.Validate() == nil
}
