package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot"
)

// errNoSnapshots says that nothing is kept here.
var errNoSnapshots = fmt.Errorf("this server keeps no snapshots: %w", dormouse.ErrConflict)

// Snapshot makes a point of a session's workspace as it is and returns it. Asked
// again under the same id it is the same point; without one it is a new one.
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
	if p, err := s.Point(ctx, id, ask.ID); !errors.Is(err, dormouse.ErrNotFound) {
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

// Point returns a point of a session that can be gone back to.
func (s *Sessions) Point(ctx context.Context, id dormouse.SessionID, point dormouse.SnapshotID) (dormouse.Snapshot, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.Snapshot{}, err
	}
	p, ok := state.Point(point)
	if !ok {
		return dormouse.Snapshot{}, fmt.Errorf("snapshot %s: %w", point, dormouse.ErrNotFound)
	}
	return s.manifest(ctx, id, p)
}

// manifest reads all of a point from the log.
func (s *Sessions) manifest(ctx context.Context, id dormouse.SessionID, p law.Point) (dormouse.Snapshot, error) {
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

// GoBack says how to go back.
type GoBack struct {
	// History also goes back to the conversation of that instant. A revert always does.
	History bool
	// Discard gives the present files up. Else a point is made of them first, which
	// stays.
	Discard bool
}

// Restore goes on with the files of a point. The present files are kept until those are
// there, and as a point that the swap names.
func (s *Sessions) Restore(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, point dormouse.SnapshotID, how GoBack) (dormouse.WorkspaceSwap, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	p, ok := state.Point(point)
	if !ok {
		return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s: %w", point, dormouse.ErrNotFound)
	}
	m, err := s.manifest(ctx, id, p)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	var to uint64
	if how.History {
		to = m.At
		switch {
		case p.Aside && !m.Aside:
			return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s holds what was replaced, and its conversation was given up; restore its files alone: %w", point, dormouse.ErrConflict)
		case m.Aside:
			return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s was brought in, so that no conversation goes with it; restore its files alone: %w", point, dormouse.ErrConflict)
		case m.Midway:
			return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s was taken while a turn was at work, so that no conversation goes with it; "+
				"restore its files alone, or revert to a message: %w", point, dormouse.ErrConflict)
		}
	}
	return s.swap(ctx, state, by, m, to, how.Discard)
}

// maxSwaps is how often it is tried to go back while others change files.
const maxSwaps = 3

// swap fetches the files of a point and goes on with them. The present ones are in a
// point before that, unless they are to be given up.
func (s *Sessions) swap(ctx context.Context, state law.State, by dormouse.Actor, m dormouse.Snapshot, to uint64, discard bool) (swap dormouse.WorkspaceSwap, err error) {
	for n := 1; ; n++ {
		// What cannot be done now is not begun: to keep the present files may cost much.
		v := law.Swap{To: to, Discard: discard}
		if err := state.RefusesSwap(v); err != nil {
			return swap, err
		}
		var replaced dormouse.SnapshotID
		if !discard {
			if replaced, state, err = s.keepReplaced(ctx, state, by); err != nil {
				return swap, err
			}
		}
		swap, err = s.deps.prepare(ctx, state, m, dormouse.SwapRestored, "", s.feeds.fetching(state.Session))
		if err != nil {
			return swap, err
		}
		swap.Replaced = replaced
		v.WorkspaceSwap = swap
		if err = s.Do(ctx, state.Session, by, v); !decided(err) {
			return swap, err
		}
		s.unprepare(ctx, state.Session, swap)
		now, peeked := s.Peek(ctx, state.Session)
		if moved := now.Workspace.Touched > 0 || now.Workspace.Number != state.Workspace.Number; peeked != nil || !moved || n == maxSwaps {
			return swap, err
		}
		state = now // somebody changed files meanwhile, or they were sealed
	}
}

// keepReplaced sees to it that a point holds the present files of a session, and
// returns which, or none if there are no files, and the session as it is then. A point
// that has lost a blob holds nothing: another is made, from the files themselves. If that
// cannot be, nothing is replaced, since the swap destroys the only copy of them.
func (s *Sessions) keepReplaced(ctx context.Context, state law.State, by dormouse.Actor) (dormouse.SnapshotID, law.State, error) {
	id, kept := state.KeptIn()
	if kept && id == "" {
		return "", state, nil
	}
	if kept {
		if err := s.checkLine(ctx, state); err == nil || !isLost(err) {
			return id, state, err
		}
	}
	p, err := s.Snapshot(ctx, state.Session, by, dormouse.SnapshotAsk{Label: replacedLabel})
	if err != nil {
		return "", state, fmt.Errorf("the present files cannot be kept, and are replaced only with discard: %w", err)
	}
	now, err := s.Peek(ctx, state.Session)
	return p.ID, now, err
}

// checkLine checks that the blobs of a session's newest point are there.
func (s *Sessions) checkLine(ctx context.Context, state law.State) error {
	if s.deps.Snapshots == nil {
		return errNoSnapshots
	}
	if err := s.deps.Snapshots.Check(ctx, state.Workspace.Line); err != nil {
		return fmt.Errorf("check snapshot %s, which has the present files: %w", state.Workspace.Newest, err)
	}
	return nil
}

// replacedLabel is what a point of files that others took the place of is called.
const replacedLabel = "replaced"

// unprepare gives back what was fetched for a swap that was refused, unless the
// session has come to that number otherwise.
func (s *Sessions) unprepare(ctx context.Context, id dormouse.SessionID, swap dormouse.WorkspaceSwap) {
	state, err := s.Peek(ctx, id)
	if err == nil && state.Workspace.Number < swap.Number {
		err = s.deps.Snapshots.Release(id, swap.Number)
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "layers not released", "session", id, "workspace", swap.Number, "error", err)
	}
}

// Revert goes back to before a prompt was taken up: files and conversation.
func (s *Sessions) Revert(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, prompt dormouse.EventID, how GoBack) (dormouse.WorkspaceSwap, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	begun, swapped, err := s.begun(ctx, state, prompt)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	to := begun - 1
	var before *law.Point
	for _, p := range state.Points {
		if p.At < begun && !p.Midway && !p.Aside {
			before = &p
		}
	}
	// What it had gone on with since then is nearer to what it had.
	if swapped != nil && (before == nil || before.At < swapped.at) {
		if p, ok := state.Point(swapped.Snapshot); ok {
			before = &p
		} else if swapped.Number == state.Workspace.Number || swapped.Snapshot == "" {
			return s.swap(ctx, state, by, dormouse.Snapshot{ID: swapped.Snapshot, Layers: swapped.Layers}, to, how.Discard)
		}
	}
	if before == nil {
		return dormouse.WorkspaceSwap{}, fmt.Errorf("there is no snapshot from before %s: %w", prompt, dormouse.ErrConflict)
	}
	m, err := s.manifest(ctx, id, *before)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	return s.swap(ctx, state, by, m, to, how.Discard)
}

// swappedAt is a swap and the seq it has in the log. That of a session which began
// without files and had none when the turn began names no point and has the seq 0.
type swappedAt struct {
	dormouse.WorkspaceSwap
	at uint64
}

// begun finds the seq at which the turn of a prompt began, and the last time before
// it that the session went on with other files, if it ever did. All sessions begin
// without files.
func (s *Sessions) begun(ctx context.Context, state law.State, prompt dormouse.EventID) (uint64, *swappedAt, error) {
	swapped := new(swappedAt)
	for after := uint64(0); ; {
		events, err := s.Events(ctx, state.Session, after, page)
		if err != nil {
			return 0, nil, err
		}
		for _, e := range events {
			after = e.Seq
			switch {
			case e.Type == dormouse.WorkspaceSwapped:
				swapped = &swappedAt{law.Payload[dormouse.WorkspaceSwap](e), e.Seq}
			case swapped != nil && swapped.at == 0 && mayHaveFiles(e):
				swapped = nil
			case e.Type != dormouse.TurnStarted || state.Voids(e.Seq):
			case slices.Contains(law.Payload[dormouse.TurnFact](e).Prompts, prompt):
				return e.Seq, swapped, nil
			}
		}
		if len(events) == 0 {
			return 0, nil, fmt.Errorf("prompt %s has not been taken up: %w", prompt, dormouse.ErrNotFound)
		}
	}
}

// mayHaveFiles reports whether after an event a session may have files that it began
// without.
func mayHaveFiles(e dormouse.Event) bool {
	switch e.Type { //nolint:exhaustive // the others change none
	case dormouse.OpStarted:
		return law.ChangesFiles(law.Payload[dormouse.OpFact](e).Op.Kind)
	case dormouse.WorkspaceTouched:
		return true
	case dormouse.SandboxStarted:
		return !law.Payload[dormouse.SandboxFact](e).Watched
	}
	return false
}

// Export writes the files of a point as a container image.
func (s *Sessions) Export(ctx context.Context, id dormouse.SessionID, point dormouse.SnapshotID, name string, w io.Writer) error {
	m, err := s.Point(ctx, id, point)
	if err != nil {
		return err
	}
	if s.deps.Snapshots == nil {
		return errNoSnapshots
	}
	return s.deps.Snapshots.Export(ctx, w, m.Layers, snapshot.Meta{Name: name, Created: s.deps.Clock(), Labels: map[string]string{
		"dormouse.session": string(id), "dormouse.snapshot": string(point),
	}})
}

// prepare fetches the files of a point, so that nothing is given up for what is not
// there, and says what swapping to them is.
func (c *Config) prepare(ctx context.Context, s law.State, m dormouse.Snapshot, reason string, origin dormouse.SessionID, progress func(done, total int64)) (dormouse.WorkspaceSwap, error) {
	if c.Snapshots == nil {
		return dormouse.WorkspaceSwap{}, errNoSnapshots
	}
	swap := dormouse.WorkspaceSwap{
		Number: s.Workspace.Number + 1, Snapshot: m.ID, Layers: c.Snapshots.Compacted(m.Layers), Reason: reason, Origin: origin,
	}
	if len(m.Layers) == 0 { // without files it began, and they are never to be had
		crash.At(crash.SwapDeciding)
		return swap, nil
	}
	if _, err := c.Snapshots.Acquire(ctx, s.Session, swap.Number, swap.Layers, progress); err != nil {
		return swap, fmt.Errorf("fetch snapshot %s: %w", m.ID, err)
	}
	crash.At(crash.SwapDeciding)
	return swap, nil
}
