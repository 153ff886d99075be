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

// useRecord is the note of what a workspace is made of.
type useRecord struct {
	Layers []dormouse.Digest `json:"layers"` // the DiffIDs
	Dirs   []string          `json:"dirs"`   // names in layers, the lowest first
}

// Acquire returns the directories that layers are mounted as, the lowest first and at
// most MaxMounted, all in one directory. What is missing is fetched, and progress,
// which may be nil, is told how many bytes of how many have come. They stay until
// the owner releases that number, and the same number is given the same ones as
// long as they are there.
func (s *Store) Acquire(ctx context.Context, owner dormouse.SessionID, number uint64, layers []dormouse.Layer, progress func(done, total int64)) ([]string, error) {
	dirs, err := s.acquire(ctx, owner, number, layers, progress)
	if err != nil {
		return nil, fmt.Errorf("use %d layers for %s: %w", len(layers), owner, layer.Full(err))
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
	note := useName(owner, number)
	if dirs, err := s.reuse(note, layers); err != nil || dirs != nil {
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
			// Each of them was within the limits; all of them together need not be. In all
			// of them names of one file are files already.
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
	return dirs, atomicfile.File{Path: s.path(usesDir, note), Perm: 0o600, Temp: s.temp.Name()}.Write(raw)
}

// mergeStep is by how many layers what is merged grows, so that a longer line can
// do with what was merged for a shorter one.
const mergeStep = MaxMounted / 2

// excess is how many of the lowest of so many layers must be merged.
func excess(layers int) int {
	if layers <= MaxMounted {
		return 0
	}
	over := layers - MaxMounted + 1
	return (over + mergeStep - 1) / mergeStep * mergeStep
}

// dedupe leaves out layers that come again later in the line, which overlayfs does
// not mount. What one of them puts or hides, the later one puts or hides again.
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

// reuse returns what a note says is used, if that is still there and for the
// same layers. What is mounted over other directories, if of the same content, is
// not the same to an overlay.
func (s *Store) reuse(note string, layers []dormouse.Layer) ([]string, error) {
	u, found, err := readRecord[useRecord](s.path(usesDir, note))
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

// readRecord reads a note, if there is one. What cannot be read was written by
// somebody else, or lost in a crash, and says nothing.
func readRecord[T any](path string) (note T, found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return note, false, nil
	}
	if err != nil {
		return note, false, err
	}
	return note, json.Unmarshal(raw, &note) == nil, nil
}

// fetchAll unpacks what is missing of layers.
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

// pin names the directories of layers, and of what those at the bottom are merged
// to, and keeps all of them from being removed. The latter is named last.
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
	unpin = func() { _ = os.Remove(f.Name()) } // it is no harm until we are gone
	_, err = f.WriteString(strings.Join(names, "\n"))
	if err = errors.Join(err, f.Close()); err != nil {
		unpin()
		return nil, nil, err
	}
	return names, unpin, nil
}

// pinPrefix is how notes of what is used for a while are called. They are good as
// long as their process lives.
const pinPrefix = "pin-"

// Release says that an owner does not use what it was given under a number. Doing
// so twice is well. After a crash it may have to be said again.
func (s *Store) Release(owner dormouse.SessionID, number uint64) error {
	if err := owner.Validate(); err != nil {
		return fmt.Errorf("release layers: %w", err)
	}
	return s.release(useName(owner, number))
}

func (s *Store) release(note string) error {
	if err := os.Remove(s.path(usesDir, note)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release layers: %w", err)
	}
	return nil
}

// ReleaseAll says that an owner uses nothing any more.
func (s *Store) ReleaseAll(owner dormouse.SessionID) error {
	notes, err := os.ReadDir(s.path(usesDir))
	if err != nil {
		return fmt.Errorf("release layers: %w", err)
	}
	for _, e := range notes {
		if of, ok := ownerOf(e.Name()); ok && of == owner {
			if err := s.release(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownerOf says whose a note is.
func ownerOf(note string) (dormouse.SessionID, bool) {
	i := strings.LastIndexByte(note, '-')
	if i < 0 {
		return "", false
	}
	_, err := strconv.ParseUint(note[i+1:], 10, 64)
	owner := dormouse.SessionID(note[:i])
	return owner, err == nil && owner.Validate() == nil
}
