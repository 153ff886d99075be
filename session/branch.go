package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// MaxBranched is how many events of a conversation a branch takes with it.
const MaxBranched = 20_000

// BranchAsk says where a branch begins.
type BranchAsk struct {
	// Session is the id of the branch, a new one if it is empty.
	Session dormouse.SessionID
	// Snapshot is the snapshot it begins at. Without one it is the present.
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

// Branch creates a session from a snapshot of another, with its conversation and its
// files and perhaps copies of its processes. After that neither sees changes of the
// other.
func (s *Sessions) Branch(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask BranchAsk) (Branched, error) {
	made, err := s.log.Created(ctx, id)
	if err != nil {
		return Branched{}, err
	}
	asleep, err := s.hibernatedGeneration(ctx, id, by, ask)
	if err != nil {
		return Branched{}, err
	}
	snap, err := s.branchSnapshot(ctx, id, by, ask.Snapshot)
	if err != nil {
		return Branched{}, err
	}
	state, err := s.Peek(ctx, id)
	if err != nil {
		return Branched{}, err
	}
	config, err := s.log.AgentConfig(ctx, id, state.Config)
	if err != nil {
		return Branched{}, err
	}
	c := dormouse.Created{
		Session: ask.Session, Tenant: made.Tenant, Owner: by, Title: ask.Title, Agent: config, Recovery: made.Recovery,
		FlushOnError: made.FlushOnError, SleepAfter: made.SleepAfter, Environment: state.Environment, EnvironmentID: made.EnvironmentID,
		Branch: &dormouse.Branched{From: id, At: snap.At, Snapshot: snap.ID},
	}
	if c.Session == "" {
		c.Session = dormouse.SessionID(NewID(dormouse.SessionPrefix))
	}
	if c.Title == "" && state.Title != "" {
		c.Title = dormouse.TitleOf([]dormouse.Block{dormouse.Text("Branch of " + state.Title)})
	}
	v := law.Create{Created: c}
	if v.Transcript, err = s.transcript(ctx, state, snap.At); err != nil {
		return Branched{}, err
	}
	c.Branch.Transcript = len(v.Transcript)
	if len(snap.Layers) > 0 {
		if s.config.Snapshots == nil {
			return Branched{}, errNoSnapshots
		}
		snap.Layers = s.config.Snapshots.Compacted(snap.Layers)
		if _, err := s.config.Snapshots.Acquire(ctx, c.Session, 1, snap.Layers, s.feeds.Progress(id)); err != nil {
			return Branched{}, fmt.Errorf("fetch snapshot %s: %w", snap.ID, err)
		}
		v.Files = &snap
	}
	// It hibernated before the snapshot was taken and has not woken since: its processes
	// ran over the files of the snapshot.
	if asleep > 0 && state.Sandbox.Phase == law.SandboxCold && state.Sandbox.Generation == asleep && v.Files != nil {
		if v.Processes, err = s.copyProcesses(ctx, id, asleep, c.Session, ask); err != nil {
			return Branched{}, err
		}
	} else if ask.needsProcesses() && state.Sandbox.Generation == 0 {
		return Branched{}, fmt.Errorf("the session has not been awake since it was made, so that nothing runs in it; wake it first: %w", dormouse.ErrConflict)
	} else if ask.needsProcesses() {
		return Branched{}, fmt.Errorf("the session woke meanwhile; try it again: %w", dormouse.ErrConflict)
	}
	if v.Processes {
		c.Branch.Shell = state.ShellOf(dormouse.PrimaryThread(id))
	}
	crash.At(crash.BranchPrepared)
	row, err := s.createWith(ctx, by, v, nil)
	crash.At(crash.BranchWritten)
	if err != nil && v.Processes {
		err = errors.Join(err, s.Under(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return s.config.Driver.Remove(ctx, runner.Fence{Session: c.Session}) // it was never in use
		}))
	}
	return Branched{Row: row, Processes: v.Processes}, err
}

// branchSnapshot is where a branch begins: at a snapshot, or at the present, of which a
// snapshot is taken. A session without files has only a conversation.
func (s *Sessions) branchSnapshot(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, snap dormouse.SnapshotID) (dormouse.Snapshot, error) {
	if snap != "" {
		m, err := s.Manifest(ctx, id, snap)
		switch {
		case err != nil:
		case m.Aside:
			err = fmt.Errorf("snapshot %s was brought in, so that no conversation goes with it; make a session of its image: %w", snap, dormouse.ErrConflict)
		case m.Midway:
			err = fmt.Errorf("snapshot %s was taken while a turn was at work, so that no conversation goes with it: %w", snap, dormouse.ErrConflict)
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
	if w := state.Workspace; w.Policy == "" {
		present := dormouse.Snapshot{At: state.Seq}
		if !w.Open { // no sandbox has had the files that it was made with, if there are any
			present.ID, present.Layers = w.Newest, w.Chain
		}
		return present, nil
	}
	return s.Snapshot(ctx, id, by, dormouse.SnapshotAsk{Label: "branch"})
}

// transcript is the conversation of a session's first thread up to a seq.
func (s *Sessions) transcript(ctx context.Context, state law.State, upto uint64) ([]dormouse.Event, error) {
	primary := dormouse.PrimaryThread(state.Session)
	var said []dormouse.Event
	for after := uint64(0); after < upto; {
		events, err := s.Events(ctx, state.Session, after, history.Page)
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
				for len(said) > 0 && said[len(said)-1].Seq > to {
					said = said[:len(said)-1]
				}
			case e.Thread == primary && law.Branches(e.Type):
				said = append(said, e)
			}
		}
		if len(said) > MaxBranched {
			return nil, fmt.Errorf("the conversation has more than %d events; branch from an earlier snapshot: %w", MaxBranched, dormouse.ErrTooLarge)
		}
	}
	return said, nil
}

// createWith writes a session's first events.
func (s *Sessions) createWith(ctx context.Context, by dormouse.Actor, v law.Create, under *dormouse.Fence) (dormouse.SessionRow, error) {
	_, row, err := s.writeFirst(ctx, by, v, under)
	return row, err
}

// writeFirst makes a session and returns it as it begins.
func (s *Sessions) writeFirst(ctx context.Context, by dormouse.Actor, v law.Create, under *dormouse.Fence) (law.State, dormouse.SessionRow, error) {
	now := law.Stamp(s.config.Clock())
	d, err := law.Decide(law.State{}, law.Command{By: by, Now: now, Verb: v})
	if err != nil {
		return law.State{}, dormouse.SessionRow{}, err
	}
	events, state, rows := d.Events, d.State, d.Rows
	law.Finish(&rows, state)
	stored, err := history.Spill(ctx, s.config.Blobs, events)
	if err != nil {
		return law.State{}, dormouse.SessionRow{}, err
	}
	if err := s.storeFirst(ctx, store.Batch{Session: v.Session, Under: under, Events: stored, Rows: &rows}); err != nil {
		return law.State{}, dormouse.SessionRow{}, fmt.Errorf("create %s: %w", v.Session, err)
	}
	s.committed(v.Session, events)
	if v.Warm || len(v.Prompts) > 0 {
		s.loadNow(v.Session)
	}
	return state, rows.Session, nil
}
