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

// mergeRecord says what consecutive layers of a chain were merged to.
type mergeRecord struct {
	Layers []dormouse.Digest `json:"layers"` // the DiffIDs
	Bottom bool              `json:"bottom"` // nothing lies below them
	Merged dormouse.Layer    `json:"merged"`
	// TooLarge says that they were not merged, because one layer cannot hold as much.
	TooLarge bool `json:"too_large,omitempty"`
}

// mergeValidFor is how long a merged layer may be put into a chain. Nothing refers to its
// blob before that, and collection spares unreferenced blobs only for the hour after they
// were put.
const mergeValidFor = 30 * time.Minute

// Compact merges the layers of a chain that are worth merging, which may take a while.
// Compacted then returns the shorter chain. If Compact fails, what it has merged so far
// stays. It goes on after layers that cannot be merged: if they are too large for one
// layer that is no failure, otherwise it returns the first such error in the end.
func (s *Store) Compact(ctx context.Context, chain []dormouse.Layer) error {
	n := len(chain)
	if err := s.compact(ctx, chain); err != nil {
		return fmt.Errorf("compact %d layers: %w", n, layer.Full(err))
	}
	return nil
}

func (s *Store) compact(ctx context.Context, chain []dormouse.Layer) (failed error) {
	if err := validate(chain); err != nil {
		return err
	}
	failures := make(map[string]bool) // by the path of the record
	for {
		from, to, ok := nextMerge(chain, s.opts.Limits, func(from, to int) bool { return failures[s.mergePath(chain[from:to], from == 0)] })
		if !ok {
			return failed
		}
		merged, err := s.merge(ctx, chain[:from], chain[from:to])
		switch {
		case err == nil:
			chain = slices.Concat(chain[:from], []dormouse.Layer{merged}, chain[to:])
			continue
		case ctx.Err() != nil, errors.Is(layer.Full(err), dormouse.ErrFull):
			return err
		case !tooLarge(err) && failed == nil:
			failed = err
		}
		failures[s.mergePath(chain[from:to], from == 0)] = true
	}
}

// tooLarge reports whether an error says that something is more than a layer holds.
func tooLarge(err error) bool {
	return errors.Is(err, layer.ErrTooBig) || errors.Is(err, layer.ErrTooMany)
}

// Compacted returns the shortest chain with the same files that Compact has recently
// prepared, or the chain itself. The caller must record it soon, before the merged blobs
// are collected.
func (s *Store) Compacted(chain []dormouse.Layer) []dormouse.Layer {
	for {
		var merged dormouse.Layer
		from, to, ok := nextMerge(chain, s.opts.Limits, func(from, to int) bool {
			found, fresh, err := s.readMerge(chain[from:to], from == 0)
			merged = found
			return err != nil || !fresh
		})
		if !ok {
			return chain
		}
		chain = slices.Concat(chain[:from], []dormouse.Layer{merged}, chain[to:])
	}
}

// mergePath is where the record of a merge is.
func (s *Store) mergePath(layers []dormouse.Layer, bottom bool) string {
	return s.path(mergesDir, hexOf(dormouse.DigestOf(fmt.Appendf(nil, "%t %s", bottom, chainKey(layers)))))
}

// readMerge returns what layers were merged to, and whether that is recent enough to be
// put into a chain. It returns dormouse.ErrNotFound if they were not merged, and
// layer.ErrTooBig if they were found to be too large.
func (s *Store) readMerge(layers []dormouse.Layer, bottom bool) (merged dormouse.Layer, fresh bool, err error) {
	path := s.mergePath(layers, bottom)
	record, found, err := readRecord[mergeRecord](path)
	if err != nil {
		return merged, false, err
	}
	if !found || record.Bottom != bottom || !slices.Equal(record.Layers, diffIDs(layers)) {
		return merged, false, dormouse.ErrNotFound
	}
	if record.TooLarge {
		return merged, false, layer.ErrTooBig
	}
	if validate([]dormouse.Layer{record.Merged}) != nil {
		return merged, false, dormouse.ErrNotFound
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return merged, false, dormouse.ErrNotFound // by now
	}
	if err != nil {
		return merged, false, err
	}
	return record.Merged, time.Since(info.ModTime()) < mergeValidFor, nil
}

// merge merges consecutive layers of a chain, over those below them.
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
			// It is not tried again before the record is swept.
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

// refreshBlob puts a blob again, so that it is not collected before a chain refers to it.
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

// writeMerge writes a record, which may be lost: it is not synced.
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
