package session

import (
	"context"
	"fmt"
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
	// Difference is what differs between two points.
	Difference = snapshot.Difference
	// Change is one name of a difference.
	Change = snapshot.Change
)

// Kept is a point that can be gone back to, and when it was taken.
type Kept struct {
	dormouse.Snapshot
	Taken time.Time
	// Newest says that it is the last point of the line: what the session goes on from.
	Newest bool
}

// Ref is how others hold a point of a session.
func (s *Sessions) Ref(id dormouse.SessionID, point dormouse.SnapshotID) Ref {
	return snapshot.Mint(s.deps.Refs, id, point)
}

// Kept returns one point of a session.
func (s *Sessions) Kept(ctx context.Context, id dormouse.SessionID, point dormouse.SnapshotID) (Kept, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return Kept{}, err
	}
	p, ok := state.Point(point)
	if !ok {
		return Kept{}, fmt.Errorf("snapshot %s: %w", point, dormouse.ErrNotFound)
	}
	return s.readPoint(ctx, state, p)
}

func (s *Sessions) readPoint(ctx context.Context, state law.State, p law.Point) (Kept, error) {
	m, err := s.manifest(ctx, state.Session, p)
	m.Aside = p.Aside
	return Kept{Snapshot: m, Taken: p.Taken, Newest: p.ID == state.Workspace.Newest}, err
}

// Points returns points of a session, the newest first: at most limit of those that
// are older than after, if that is given. It also says how many there are in all.
func (s *Sessions) Points(ctx context.Context, id dormouse.SessionID, after dormouse.SnapshotID, limit int) (page []Kept, all int, err error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	points := state.Points
	if after != "" {
		i := slices.IndexFunc(points, func(p law.Point) bool { return p.ID == after })
		if i < 0 {
			return nil, 0, fmt.Errorf("snapshot %s: %w", after, dormouse.ErrNotFound)
		}
		points = points[:i]
	}
	for _, p := range slices.Backward(points[len(points)-min(len(points), limit):]) {
		k, err := s.readPoint(ctx, state, p)
		if err != nil {
			return nil, 0, err
		}
		page = append(page, k)
	}
	return page, len(state.Points), nil
}

// Prune deletes points that are not to be kept any longer, as retention does, and
// returns which; with dry it only says which it would delete.
func (s *Sessions) Prune(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, keep dormouse.Retention, dry bool) ([]dormouse.SnapshotID, error) {
	if keep.MaxAge < 0 || keep.MaxCount < 0 || keep == (dormouse.Retention{}) {
		return nil, fmt.Errorf("prune by an age, by a number, or by both: %w", dormouse.ErrInvalid)
	}
	state, err := s.Peek(ctx, id)
	if err != nil {
		return nil, err
	}
	gone := state.Expired(keep, s.deps.Clock())
	if dry || len(gone) == 0 {
		return gone, nil
	}
	return gone, s.Do(ctx, id, by, law.ForgetSnapshots{IDs: gone})
}

// maxChanges bounds how many names a difference has.
const maxChanges = 10_000

// Place is a point of a session, the newest if it names none.
type Place struct {
	Session  dormouse.SessionID
	Snapshot dormouse.SnapshotID
}

// place reads a point.
func (s *Sessions) place(ctx context.Context, p Place) (dormouse.Snapshot, error) {
	if p.Snapshot != "" {
		return s.Point(ctx, p.Session, p.Snapshot)
	}
	state, err := s.Peek(ctx, p.Session)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	if len(state.Points) == 0 {
		return dormouse.Snapshot{}, fmt.Errorf("session %s has no snapshot: %w", p.Session, dormouse.ErrNotFound)
	}
	return s.manifest(ctx, p.Session, state.Points[len(state.Points)-1])
}

// Diff says what differs between two points, of one session or of two, and which they
// are. Without a first the second is compared with the one before it, or with nothing.
func (s *Sessions) Diff(ctx context.Context, from *Place, to Place) (d Difference, before, now dormouse.Snapshot, err error) {
	if now, err = s.place(ctx, to); err != nil {
		return d, before, now, err
	}
	if from == nil && now.Parent != "" {
		from = &Place{to.Session, now.Parent}
	}
	if from != nil {
		if before, err = s.place(ctx, *from); err != nil {
			return d, before, now, err
		}
	}
	if s.deps.Snapshots == nil {
		return d, before, now, errNoSnapshots
	}
	d, err = s.deps.Snapshots.Diff(ctx, before.Layers, now.Layers, maxChanges)
	return d, before, now, err
}
