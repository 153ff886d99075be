//go:build linux

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// mergeRecord is the note of what layers that lie over each other were merged to.
type mergeRecord struct {
	Layers []dormouse.Digest `json:"layers"` // the DiffIDs
	Bottom bool              `json:"bottom"` // nothing lies below them
	Merged dormouse.Layer    `json:"merged"`
	// TooLarge says that they are not merged, because one layer cannot hold so much.
	TooLarge bool `json:"too_large,omitempty"`
}

// mergeValidFor is how long what was merged can be had. It is not named by anybody until
// it is had, and who collects blobs leaves alone those that were put in the last
// hour.
const mergeValidFor = 30 * time.Minute

// Compact merges what is worth merging of a line, which may take a while, so that
// Shorter can offer it. What has been merged when it fails is not lost. A run that
// cannot be merged is passed over: if one layer could not hold it that is no failure,
// otherwise the first such error is returned in the end.
func (s *Store) Compact(ctx context.Context, line []dormouse.Layer) error {
	n := len(line)
	if err := s.compact(ctx, line); err != nil {
		return fmt.Errorf("compact %d layers: %w", n, layer.Full(err))
	}
	return nil
}

func (s *Store) compact(ctx context.Context, line []dormouse.Layer) (failed error) {
	if err := validate(line); err != nil {
		return err
	}
	passed := make(map[string]bool) // notes of runs
	for {
		from, to, ok := nextMerge(line, s.opts.Limits, func(from, to int) bool { return passed[s.mergePath(line[from:to], from == 0)] })
		if !ok {
			return failed
		}
		merged, err := s.merge(ctx, line[:from], line[from:to])
		switch {
		case err == nil:
			line = slices.Concat(line[:from], []dormouse.Layer{merged}, line[to:])
			continue
		case ctx.Err() != nil, errors.Is(layer.Full(err), dormouse.ErrFull):
			return err
		case !tooLarge(err) && failed == nil:
			failed = err
		}
		passed[s.mergePath(line[from:to], from == 0)] = true
	}
}

// tooLarge reports whether an error says that something is more than a layer holds.
func tooLarge(err error) bool {
	return errors.Is(err, layer.ErrTooBig) || errors.Is(err, layer.ErrTooMany)
}

// Compacted returns the shortest line that is the same and that Compact has lately
// prepared, or the line itself. Whoever wants to name its layers must do so soon.
func (s *Store) Compacted(line []dormouse.Layer) []dormouse.Layer {
	for {
		var merged dormouse.Layer
		from, to, ok := nextMerge(line, s.opts.Limits, func(from, to int) bool {
			found, fresh, err := s.readMerge(line[from:to], from == 0)
			merged = found
			return err != nil || !fresh
		})
		if !ok {
			return line
		}
		line = slices.Concat(line[:from], []dormouse.Layer{merged}, line[to:])
	}
}

// mergePath is where the note of a run is.
func (s *Store) mergePath(layers []dormouse.Layer, bottom bool) string {
	return s.path(mergesDir, hexOf(dormouse.DigestOf(fmt.Appendf(nil, "%t %s", bottom, chainKey(layers)))))
}

// readMerge returns what layers were merged to, and whether that can be had. If they
// were not merged it returns dormouse.ErrNotFound, and layer.ErrTooBig if they are not
// to be.
func (s *Store) readMerge(layers []dormouse.Layer, bottom bool) (merged dormouse.Layer, fresh bool, err error) {
	path := s.mergePath(layers, bottom)
	note, found, err := readRecord[mergeRecord](path)
	if err != nil {
		return merged, false, err
	}
	if !found || note.Bottom != bottom || !slices.Equal(note.Layers, diffIDs(layers)) {
		return merged, false, dormouse.ErrNotFound
	}
	if note.TooLarge {
		return merged, false, layer.ErrTooBig
	}
	if validate([]dormouse.Layer{note.Merged}) != nil {
		return merged, false, dormouse.ErrNotFound
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return merged, false, dormouse.ErrNotFound // by now
	}
	if err != nil {
		return merged, false, err
	}
	return note.Merged, time.Since(info.ModTime()) < mergeValidFor, nil
}

// merge merges layers that lie over others.
func (s *Store) merge(ctx context.Context, below, layers []dormouse.Layer) (merged dormouse.Layer, err error) {
	bottom := len(below) == 0
	path := s.mergePath(layers, bottom)
	done, err := s.singleFlight(ctx, filepath.Base(path))
	if err != nil {
		return merged, err
	}
	defer done()
	merged, fresh, err := s.readMerge(layers, bottom)
	if err == nil && fresh {
		return merged, nil
	}
	if err == nil {
		err = s.refreshBlob(ctx, merged)
	}
	if errors.Is(err, dormouse.ErrNotFound) || errors.Is(err, blob.ErrCorrupt) {
		merged, err = s.putMerged(ctx, below, layers)
		if tooLarge(err) {
			// Nobody tries again before the note is swept.
			return merged, errors.Join(err, s.writeMerge(path, mergeRecord{Layers: diffIDs(layers), Bottom: bottom, TooLarge: true}))
		}
	}
	if err != nil {
		return merged, err
	}
	crash.At(crash.CompactMerged)
	if err := s.writeMerge(path, mergeRecord{Layers: diffIDs(layers), Bottom: bottom, Merged: merged}); err != nil {
		return merged, err
	}
	crash.At(crash.CompactNoted)
	return merged, nil
}

// refreshBlob keeps a blob that nobody names yet from being collected.
func (s *Store) refreshBlob(ctx context.Context, l dormouse.Layer) error {
	packed, _, err := s.opts.Blobs.Open(ctx, l.Digest)
	if err != nil {
		return err
	}
	_, _, err = s.opts.Blobs.PutFrom(ctx, packed)
	return errors.Join(err, packed.Close())
}

func (s *Store) putMerged(ctx context.Context, below, layers []dormouse.Layer) (merged dormouse.Layer, err error) {
	all := slices.Concat(below, layers)
	names, unpin, err := s.pin(all, nil)
	if err != nil {
		return merged, err
	}
	defer unpin()
	if err := s.fetchAll(ctx, all, names, nil); err != nil {
		return merged, err
	}
	g, err := s.Stage(ctx)
	if err != nil {
		return merged, err
	}
	dirs := s.paths(names)
	err = layer.MergeOver(ctx, dirs[:len(below)], dirs[len(below):], s.opts.Limits, g.Dir)
	if err == nil {
		merged, err = s.Put(ctx, g)
	}
	return merged, errors.Join(err, g.Close())
}

// writeMerge writes a note that can be lost.
func (s *Store) writeMerge(path string, r mergeRecord) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	temp := filepath.Join(s.temp.Name(), filepath.Base(path))
	if err := os.WriteFile(temp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
