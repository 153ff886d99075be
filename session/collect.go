package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// keepBlobs is how long an unreferenced blob is left alone: it may have been put to be
// referenced soon.
const keepBlobs = time.Hour

// Collect removes the blobs that neither an event nor a snapshot names any more and
// returns how many. A blob that is put again at the same time stays, and so does one that
// was named at the last call: a restore or a branch names the layers of a snapshot a
// while after it has read the snapshot, and may by then be the only one that does. It
// must not be called concurrently.
func (s *Sessions) Collect(ctx context.Context) (removed int, err error) {
	blobs, ok := s.config.Blobs.(blob.Collectable)
	if !ok {
		return 0, nil
	}
	err = s.Under(ctx, func(ctx context.Context) error {
		removed, err = s.collect(ctx, blobs)
		return err
	})
	return removed, err
}

func (s *Sessions) collect(ctx context.Context, blobs blob.Collectable) (int, error) {
	before := time.Now().Add(-keepBlobs) // the blobs' own clock, whatever the sessions' is
	const atOnce = 500
	var batch []dormouse.Digest
	removed, unnamed := 0, make(map[dormouse.Digest]bool)
	flush := func() error {
		named, err := s.config.Store.Named(ctx, batch)
		if err != nil {
			return fmt.Errorf("look for who names blobs: %w", err)
		}
		for _, d := range batch {
			switch {
			case slices.Contains(named, d):
				continue
			case !s.unnamed[d]:
				unnamed[d] = true
				continue
			}
			crash.At(crash.CollectFound)
			gone, err := blobs.Collect(ctx, d, before)
			if err != nil {
				return err
			}
			if gone {
				removed++
				crash.At(crash.CollectRemoved)
			}
		}
		batch = batch[:0]
		return nil
	}
	err := blobs.Each(ctx, before, func(d dormouse.Digest) error {
		if batch = append(batch, d); len(batch) < atOnce {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	s.unnamed = unnamed
	return removed, err
}

// SweepLayers removes the directories of layers that are not needed any more and returns
// how many.
func (s *Sessions) SweepLayers(ctx context.Context) (removed int, err error) {
	if s.config.Snapshots == nil {
		return 0, nil
	}
	err = s.Under(ctx, func(ctx context.Context) error {
		removed, err = s.config.Snapshots.Sweep(ctx, s.config.Store.Named, func(id dormouse.SessionID) (bool, error) {
			_, err := s.config.Store.Session(ctx, id)
			if errors.Is(err, dormouse.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		})
		return err
	})
	return removed, err
}
