package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot"
)

// What doors say of snapshots.
type (
	// Ref is how people and agents hold a snapshot.
	Ref = snapshot.Ref
	// Difference is what differs between two snapshots.
	Difference = snapshot.Difference
	// Change is one name of a difference.
	Change = snapshot.Change
)

// TakenSnapshot is a snapshot that can be restored, and when it was taken.
type TakenSnapshot struct {
	dormouse.Snapshot
	Taken time.Time
	// Newest says that it is the newest snapshot of the chain: what the session goes on from.
	Newest bool
}

// Ref is how others hold a snapshot of a session.
func (s *Sessions) Ref(id dormouse.SessionID, snap dormouse.SnapshotID) Ref {
	return snapshot.Mint(s.config.Refs, id, snap)
}

// SnapshotTaken returns one snapshot of a session.
func (s *Sessions) SnapshotTaken(ctx context.Context, id dormouse.SessionID, snap dormouse.SnapshotID) (TakenSnapshot, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return TakenSnapshot{}, err
	}
	p, ok := state.Snapshot(snap)
	if !ok {
		return TakenSnapshot{}, fmt.Errorf("snapshot %s: %w", snap, dormouse.ErrNotFound)
	}
	return s.readSnapshot(ctx, state, p)
}

func (s *Sessions) readSnapshot(ctx context.Context, state law.State, p law.Snapshot) (TakenSnapshot, error) {
	m, err := s.readManifest(ctx, state.Session, p)
	m.Aside = p.Aside
	return TakenSnapshot{Snapshot: m, Taken: p.Taken, Newest: p.ID == state.Workspace.Newest}, err
}

// Snapshots returns snapshots of a session, the newest first: at most limit of those that
// are older than after, if that is given. It also says how many there are in all.
func (s *Sessions) Snapshots(ctx context.Context, id dormouse.SessionID, after dormouse.SnapshotID, limit int) (page []TakenSnapshot, all int, err error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	snaps := state.Snapshots
	if after != "" {
		i := slices.IndexFunc(snaps, func(p law.Snapshot) bool { return p.ID == after })
		if i < 0 {
			return nil, 0, fmt.Errorf("snapshot %s: %w", after, dormouse.ErrNotFound)
		}
		snaps = snaps[:i]
	}
	for _, p := range slices.Backward(snaps[len(snaps)-min(len(snaps), limit):]) {
		k, err := s.readSnapshot(ctx, state, p)
		if err != nil {
			return nil, 0, err
		}
		page = append(page, k)
	}
	return page, len(state.Snapshots), nil
}

// Prune deletes the snapshots whose retention is over, and returns which; with dry it
// only returns which it would delete.
func (s *Sessions) Prune(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, keep dormouse.Retention, dry bool) ([]dormouse.SnapshotID, error) {
	if keep.MaxAge < 0 || keep.MaxCount < 0 || keep == (dormouse.Retention{}) {
		return nil, fmt.Errorf("prune by an age, by a number, or by both: %w", dormouse.ErrInvalid)
	}
	state, err := s.Peek(ctx, id)
	if err != nil {
		return nil, err
	}
	gone := state.Expired(keep, s.config.Clock())
	if dry || len(gone) == 0 {
		return gone, nil
	}
	return gone, s.Do(ctx, id, by, law.ForgetSnapshots{IDs: gone})
}

// maxChanges bounds how many names a difference has.
const maxChanges = 10_000

// SnapshotAt is a snapshot of a session, the newest if it names none.
type SnapshotAt struct {
	Session  dormouse.SessionID
	Snapshot dormouse.SnapshotID
}

// snapshotAt reads a snapshot.
func (s *Sessions) snapshotAt(ctx context.Context, p SnapshotAt) (dormouse.Snapshot, error) {
	if p.Snapshot != "" {
		return s.Manifest(ctx, p.Session, p.Snapshot)
	}
	state, err := s.Peek(ctx, p.Session)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	if len(state.Snapshots) == 0 {
		return dormouse.Snapshot{}, fmt.Errorf("session %s has no snapshot: %w", p.Session, dormouse.ErrNotFound)
	}
	return s.readManifest(ctx, p.Session, state.Snapshots[len(state.Snapshots)-1])
}

// Diff says what differs between two snapshots, of one session or of two, and which they
// are. Without a first the second is compared with the one before it, or with nothing.
func (s *Sessions) Diff(ctx context.Context, from *SnapshotAt, to SnapshotAt) (d Difference, before, now dormouse.Snapshot, err error) {
	if now, err = s.snapshotAt(ctx, to); err != nil {
		return d, before, now, err
	}
	if from == nil && now.Parent != "" {
		from = &SnapshotAt{to.Session, now.Parent}
	}
	if from != nil {
		if before, err = s.snapshotAt(ctx, *from); err != nil {
			return d, before, now, err
		}
	}
	if s.config.Snapshots == nil {
		return d, before, now, errNoSnapshots
	}
	d, err = s.config.Snapshots.Diff(ctx, before.Layers, now.Layers, maxChanges)
	return d, before, now, err
}

// Snapshot takes a snapshot of a session's workspace as it is and returns it. Asked
// again under the same id it is the same snapshot; without one it is a new one.
func (s *Sessions) Snapshot(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask dormouse.SnapshotAsk) (dormouse.Snapshot, error) {
	if ask.ID == "" {
		ask.ID = dormouse.SnapshotID(NewID(dormouse.SnapshotPrefix))
	}
	if err := ask.Validate(); err != nil {
		return dormouse.Snapshot{}, err
	}
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	f, err := s.followFrom(ctx, id, state.Seq)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	defer func() { f.Close() }()
	if err := s.Do(ctx, id, by, law.AskSnapshot{SnapshotAsk: ask}); err != nil {
		return dormouse.Snapshot{}, err
	}
	if p, err := s.Manifest(ctx, id, ask.ID); !errors.Is(err, dormouse.ErrNotFound) {
		return p, err
	}
	for {
		items, err := f.Next(ctx)
		if errors.Is(err, dormouse.ErrBehind) {
			at := f.Cursor()
			f.Close()
			if f, err = s.followFrom(ctx, id, at); err == nil {
				continue
			}
		}
		if err != nil {
			return dormouse.Snapshot{}, err
		}
		for _, i := range items {
			switch i.Event.Type { //nolint:exhaustive // the others say nothing of it
			case dormouse.SnapshotTaken:
				if p := law.Payload[dormouse.Snapshot](i.Event); p.ID == ask.ID {
					return p, nil
				}
			case dormouse.SnapshotSkipped:
				if p := law.Payload[dormouse.SnapshotSkip](i.Event); p.ID == ask.ID {
					why := dormouse.ErrConflict
					if p.Full {
						why = dormouse.ErrFull
					}
					return dormouse.Snapshot{}, fmt.Errorf("snapshot %s was not taken: %s: %w", ask.ID, p.Error, why)
				}
			case dormouse.SessionTerminated:
				return dormouse.Snapshot{}, dormouse.ErrTerminated
			}
		}
	}
}

// Manifest returns a snapshot of a session that can be restored.
func (s *Sessions) Manifest(ctx context.Context, id dormouse.SessionID, snap dormouse.SnapshotID) (dormouse.Snapshot, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	p, ok := state.Snapshot(snap)
	if !ok {
		return dormouse.Snapshot{}, fmt.Errorf("snapshot %s: %w", snap, dormouse.ErrNotFound)
	}
	return s.readManifest(ctx, id, p)
}

// readManifest reads all of a snapshot from the log.
func (s *Sessions) readManifest(ctx context.Context, id dormouse.SessionID, p law.Snapshot) (dormouse.Snapshot, error) {
	events, err := s.Events(ctx, id, p.Seq-1, 1)
	switch {
	case err != nil:
		return dormouse.Snapshot{}, err
	case len(events) == 0 || events[0].Type != dormouse.SnapshotTaken:
		return dormouse.Snapshot{}, fmt.Errorf("snapshot %s is not in the log: %w", p.ID, dormouse.ErrNotFound)
	}
	m := law.Payload[dormouse.Snapshot](events[0])
	if m.ID != p.ID || len(m.Layers) == 0 {
		return m, fmt.Errorf("snapshot %s cannot be read: %w", p.ID, dormouse.ErrNotFound)
	}
	return m, nil
}

// Export writes the files of a snapshot as a container image.
func (s *Sessions) Export(ctx context.Context, id dormouse.SessionID, snap dormouse.SnapshotID, name string, w io.Writer) error {
	m, err := s.Manifest(ctx, id, snap)
	if err != nil {
		return err
	}
	if s.config.Snapshots == nil {
		return errNoSnapshots
	}
	return s.config.Snapshots.Export(ctx, w, m.Layers, snapshot.Meta{Name: name, Created: s.config.Clock(), Labels: map[string]string{
		"dormouse.session": string(id), "dormouse.snapshot": string(snap),
	}})
}
