package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
)

// Import takes a snapshot of a session from a container image. The session goes on with
// the files it has; the snapshot can be restored. The same image under the same id is
// the same snapshot, and another image is refused.
func (s *Sessions) Import(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.SnapshotAsk, image io.Reader) (dormouse.Snapshot, error) {
	state, err := s.Peek(ctx, id)
	switch {
	case err != nil:
		return dormouse.Snapshot{}, err
	case state.Terminated != nil:
		return dormouse.Snapshot{}, dormouse.ErrTerminated
	}
	if err := ask.Validate(); err != nil {
		return dormouse.Snapshot{}, err
	}
	layers, err := s.config.readImage(ctx, state.Environment, image)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	if err := s.Do(ctx, id, by, law.ImportSnapshot{Ask: ask, Layers: layers, Keep: s.config.Retention}); err != nil {
		return dormouse.Snapshot{}, err
	}
	crash.At(crash.ImageNamed)
	p, err := s.Manifest(ctx, id, ask.ID)
	if err == nil && !sameFiles(p.Layers, layers) {
		err = anotherImage(ask.ID)
	}
	return p, err
}

// CreateFrom makes a session whose workspace begins with the files of a container
// image, and returns it with the snapshot that they are. The same image under the same id
// is the same session, and another image is refused.
func (s *Sessions) CreateFrom(ctx context.Context, by dormouse.Actor, c dormouse.Created, label string, image io.Reader) (Row, dormouse.SnapshotID, error) {
	if c.Session == "" {
		c.Session = dormouse.SessionID(NewID(dormouse.SessionPrefix))
	}
	ask := dormouse.SnapshotAsk{ID: law.DeriveSnapshotID(c.Session, dormouse.SnapshotImported, 0), Label: label}
	if err := errors.Join(ask.Validate(), c.Validate()); err != nil {
		return Row{}, "", err
	}
	if c.Parent != "" {
		return Row{}, "", fmt.Errorf("a child has the files of its parent: %w", dormouse.ErrInvalid)
	}
	var err error
	if c.Environment, err = s.config.completeEnvironment(c.Environment); err != nil {
		return Row{}, "", fmt.Errorf("environment: %w", err)
	}
	layers, err := s.config.readImage(ctx, c.Environment, image)
	if err != nil {
		return Row{}, "", err
	}
	row, err := s.createWith(ctx, by, law.Create{Created: c, Files: &dormouse.Snapshot{ID: ask.ID, Label: ask.Label, Layers: layers}}, nil)
	if errors.Is(err, dormouse.ErrConflict) {
		row, err = s.createdFrom(ctx, c.Session, layers)
	}
	crash.At(crash.ImageNamed)
	return row, ask.ID, err
}

// createdFrom finds a session that exists, if it began with these files.
func (s *Sessions) createdFrom(ctx context.Context, id dormouse.SessionID, layers []dormouse.Layer) (Row, error) {
	const begin = 10 // events, of which one says what it began with
	events, err := s.Events(ctx, id, 0, begin)
	if err != nil {
		return Row{}, err
	}
	for _, e := range events {
		if e.Type == dormouse.WorkspaceSwapped {
			if p := law.Payload[dormouse.WorkspaceSwap](e); p.Reason == dormouse.SwapImported && sameFiles(p.Layers, layers) {
				return s.Row(ctx, id)
			}
			break
		}
	}
	return Row{}, anotherImage(id)
}

func anotherImage[ID ~string](id ID) error {
	return fmt.Errorf("%s was made of another image: %w", id, dormouse.ErrConflict)
}

// sameFiles reports whether layers hold the same.
func sameFiles(a, b []dormouse.Layer) bool {
	return slices.EqualFunc(a, b, func(a, b dormouse.Layer) bool { return a.DiffID == b.DiffID })
}

// readImage stores the layers of an image. They are verified, and nothing refers to them
// yet. An image that is more than the environment allows is refused.
func (c *Config) readImage(ctx context.Context, e dormouse.Environment, image io.Reader) ([]dormouse.Layer, error) {
	if _, ok := c.Driver.(sandbox.Snapshotter); !ok || c.Snapshots == nil {
		return nil, errNoSnapshots
	}
	limits := c.Snapshots.Limits()
	if e.Limits.Disk > 0 {
		limits.Bytes = min(limits.Bytes, e.Limits.Disk)
	}
	layers, err := c.Snapshots.Import(ctx, image, limits)
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, fmt.Errorf("the image has no layers: %w", dormouse.ErrInvalid)
	}
	crash.At(crash.ImageKept)
	return layers, nil
}
