//go:build linux

package snapshot

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// Diff compares the files of two chains. It counts all changes and lists at most the
// given number of them. Times are not compared.
func (s *Store) Diff(ctx context.Context, before, now []dormouse.Layer, most int) (Difference, error) {
	d, err := s.diff(ctx, before, now, most)
	if err != nil {
		return Difference{}, fmt.Errorf("compare snapshots: %w", layer.Full(err))
	}
	return d, nil
}

// View returns the directories of all layers, in the same order, to be read until done is
// called. It fetches those that are missing.
func (s *Store) View(ctx context.Context, layers []dormouse.Layer) (dirs []string, done func(), err error) {
	if len(layers) == 0 {
		return nil, func() {}, nil
	}
	if err := validate(layers); err != nil {
		return nil, nil, err
	}
	names, unpin, err := s.pin(layers, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := s.fetchAll(ctx, layers, names, nil); err != nil {
		unpin()
		return nil, nil, err
	}
	return s.paths(names), unpin, nil
}

func (s *Store) diff(ctx context.Context, before, now []dormouse.Layer, most int) (Difference, error) {
	d := Difference{Changes: []Change{}}
	dirs, done, err := s.View(ctx, slices.Concat(before, now))
	if err != nil {
		return d, err
	}
	defer done()
	err = layer.Compare(ctx, dirs[:len(before)], dirs[len(before):], layer.Unlimited, func(c layer.Change) { add(&d, c, most) })
	return d, err
}

// add counts a change, and lists it unless the list is full.
func add(d *Difference, c layer.Change, most int) {
	named := Change{Path: c.Path, What: Changed, Kind: kind(c.Now), Was: c.Was.Size, Size: c.Now.Size}
	switch {
	case c.Was.Kind == 0:
		named.What = Added
		d.Added++
	case c.Now.Kind == 0:
		named.What, named.Kind = Removed, kind(c.Was)
		d.Removed++
	default:
		d.Changed++
	}
	if len(d.Changes) < most {
		d.Changes = append(d.Changes, named)
	} else {
		d.Omitted++
	}
}

// kind is the word for the kind of an entry.
func kind(e layer.Entry) string {
	switch e.Kind {
	case layer.Dir:
		return "directory"
	case layer.File:
		return "file"
	case layer.Symlink:
		return "symlink"
	case layer.Fifo:
		return "pipe"
	case layer.Whiteout, layer.Unsupported: // which are never visible
	}
	return ""
}
