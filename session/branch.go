package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// MaxBranched is how many events of a conversation a branch takes with it.
const MaxBranched = 20_000

// BranchAsk says where a branch begins.
type BranchAsk struct {
	// Session is the id of the branch, a new one if it is empty.
	Session dormouse.SessionID
	// Snapshot is the point it begins at. Without one it is the present.
	Snapshot dormouse.SnapshotID
	Title    string
	// Processes says whether what runs is taken along: if it is nil only if the session
	// sleeps, and if it is true the session is put to sleep for it.
	Processes *bool
}

// Branched is a session that was made from another.
type Branched struct {
	Row
	// Processes says that what ran there runs on here.
	Processes bool `json:"processes"`
}

// Branch makes a session that goes on from a point of another: with its conversation
// and its files, which neither sees the other change any more, and perhaps with what
// runs in its sandbox.
func (s *Sessions) Branch(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask BranchAsk) (Branched, error) {
	made, err := created(ctx, s.deps, id)
	if err != nil {
		return Branched{}, err
	}
	asleep, err := s.asleep(ctx, id, by, ask)
	if err != nil {
		return Branched{}, err
	}
	point, err := s.branchPoint(ctx, id, by, ask.Snapshot)
	if err != nil {
		return Branched{}, err
	}
	state, err := s.Peek(ctx, id)
	if err != nil {
		return Branched{}, err
	}
	config, err := configAt(ctx, s.deps, id, state.Config)
	if err != nil {
		return Branched{}, err
	}
	c := dormouse.Created{
		Session: ask.Session, Tenant: made.Tenant, Owner: by, Title: ask.Title, Agent: config, Recovery: made.Recovery,
		FlushOnError: made.FlushOnError, SleepAfter: made.SleepAfter, Environment: state.Environment, EnvironmentID: made.EnvironmentID,
		Branch: &dormouse.Branched{From: id, At: point.At, Snapshot: point.ID},
	}
	if c.Session == "" {
		c.Session = dormouse.SessionID(NewID(dormouse.SessionPrefix))
	}
	if c.Title == "" && state.Title != "" {
		c.Title = dormouse.TitleOf([]dormouse.Block{dormouse.Text("Branch of " + state.Title)})
	}
	v := law.Create{Created: c}
	if v.Talk, err = s.talk(ctx, state, point.At); err != nil {
		return Branched{}, err
	}
	c.Branch.Talk = len(v.Talk)
	if len(point.Layers) > 0 {
		if s.deps.Snapshots == nil {
			return Branched{}, errNoSnapshots
		}
		point.Layers = s.deps.Snapshots.Compacted(point.Layers)
		if _, err := s.deps.Snapshots.Acquire(ctx, c.Session, 1, point.Layers, s.feeds.fetching(id)); err != nil {
			return Branched{}, fmt.Errorf("fetch snapshot %s: %w", point.ID, err)
		}
		v.Files = &point
	}
	// It slept before the point was made, and has not woken since: what it sleeps with
	// ran over the files of the point.
	if asleep > 0 && state.Sandbox.Phase == law.SandboxCold && state.Sandbox.Generation == asleep && v.Files != nil {
		if v.Processes, err = s.takeAlong(ctx, id, asleep, c.Session, ask); err != nil {
			return Branched{}, err
		}
	} else if ask.wants() {
		return Branched{}, fmt.Errorf("the session woke meanwhile; try it again: %w", dormouse.ErrConflict)
	}
	if v.Processes {
		c.Branch.Shell = state.ShellOf(dormouse.PrimaryThread(id))
	}
	crash.At(crash.BranchPrepared)
	row, err := s.make(ctx, by, v, nil)
	crash.At(crash.BranchWritten)
	if err != nil && v.Processes {
		err = errors.Join(err, s.Under(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return s.deps.Driver.Remove(ctx, runner.Fence{Session: c.Session}) // nobody has had it
		}))
	}
	return Branched{Row: row, Processes: v.Processes}, err
}

// branchPoint is where a branch begins: at a point, or at the present, of which a
// point is made. A session without files has only a conversation.
func (s *Sessions) branchPoint(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, point dormouse.SnapshotID) (dormouse.Snapshot, error) {
	if point != "" {
		m, err := s.Point(ctx, id, point)
		switch {
		case err != nil:
		case m.Aside:
			err = fmt.Errorf("snapshot %s was brought in, so that no conversation goes with it; make a session of its image: %w", point, dormouse.ErrConflict)
		case m.Midway:
			err = fmt.Errorf("snapshot %s was taken while a turn was at work, so that no conversation goes with it: %w", point, dormouse.ErrConflict)
		}
		return m, err
	}
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	if state.Works() {
		return dormouse.Snapshot{}, fmt.Errorf("the session is at work; branch from a snapshot, or when it rests: %w", dormouse.ErrConflict)
	}
	if state.Workspace.Policy == "" {
		return dormouse.Snapshot{At: state.Seq}, nil
	}
	return s.Snapshot(ctx, id, by, dormouse.SnapshotAsk{Label: "branch"})
}

// talk is the conversation of a session's first thread up to a seq.
func (s *Sessions) talk(ctx context.Context, state law.State, upto uint64) ([]dormouse.Event, error) {
	primary := dormouse.PrimaryThread(state.Session)
	var talk []dormouse.Event
	for after := uint64(0); after < upto; {
		events, err := s.Events(ctx, state.Session, after, page)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Seq
			switch {
			case e.Seq > upto:
			case e.Type == dormouse.HistoryTruncated:
				to := law.Payload[dormouse.Truncation](e).To
				for len(talk) > 0 && talk[len(talk)-1].Seq > to {
					talk = talk[:len(talk)-1]
				}
			case e.Thread == primary && law.PassesOn(e.Type):
				talk = append(talk, e)
			}
		}
		if len(talk) > MaxBranched {
			return nil, fmt.Errorf("the conversation has more than %d events; branch from an earlier snapshot: %w", MaxBranched, dormouse.ErrTooLarge)
		}
	}
	return talk, nil
}

// make writes a session's first events.
func (s *Sessions) make(ctx context.Context, by dormouse.Actor, v law.Create, under *dormouse.Fence) (dormouse.SessionRow, error) {
	_, row, err := s.begin(ctx, by, v, under)
	return row, err
}

// begin makes a session and returns it as it begins.
func (s *Sessions) begin(ctx context.Context, by dormouse.Actor, v law.Create, under *dormouse.Fence) (law.State, dormouse.SessionRow, error) {
	now := law.Stamp(s.deps.Clock())
	d, err := law.Decide(law.State{}, law.Command{By: by, Now: now, Verb: v})
	if err != nil {
		return law.State{}, dormouse.SessionRow{}, err
	}
	events, state, rows := d.Events, d.State, d.Rows
	law.Finish(&rows, state)
	stored, err := spill(ctx, s.deps.Blobs, events)
	if err != nil {
		return law.State{}, dormouse.SessionRow{}, err
	}
	if err := s.write(ctx, store.Batch{Session: v.Session, Under: under, Events: stored, Rows: &rows}); err != nil {
		return law.State{}, dormouse.SessionRow{}, fmt.Errorf("create %s: %w", v.Session, err)
	}
	s.deps.committed(v.Session, events)
	if v.Warm || len(v.Prompts) > 0 {
		s.wake(v.Session)
	}
	return state, rows.Session, nil
}
