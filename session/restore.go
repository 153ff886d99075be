package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// errNoSnapshots means that this server has nowhere to store snapshots.
var errNoSnapshots = fmt.Errorf("this server keeps no snapshots: %w", dormouse.ErrConflict)

// RestoreOptions says how to go back.
type RestoreOptions struct {
	// History also goes back to the conversation of that instant. A revert always does.
	History bool
	// Discard gives the present files up. Else a snapshot is taken of them first, which
	// stays.
	Discard bool
}

// Restore replaces the files of the workspace by those of a snapshot. The present files
// stay until the new workspace is ready, and are in a snapshot that the swap names.
func (s *Sessions) Restore(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, snap dormouse.SnapshotID, how RestoreOptions) (dormouse.WorkspaceSwap, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	p, ok := state.Snapshot(snap)
	if !ok {
		return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s: %w", snap, dormouse.ErrNotFound)
	}
	m, err := s.readManifest(ctx, id, p)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	var to uint64
	if how.History {
		to = m.At
		switch {
		case p.Aside && !m.Aside:
			return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s holds what was replaced, and its conversation was given up; restore its files alone: %w", snap, dormouse.ErrConflict)
		case m.Aside:
			return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s was brought in, so that no conversation goes with it; restore its files alone: %w", snap, dormouse.ErrConflict)
		case m.Midway:
			return dormouse.WorkspaceSwap{}, fmt.Errorf("snapshot %s was taken while a turn was at work, so that no conversation goes with it; "+
				"restore its files alone, or revert to a message: %w", snap, dormouse.ErrConflict)
		}
	}
	return s.swap(ctx, state, by, m, to, how.Discard)
}

// maxSwaps is how often a restore is tried while others change files.
const maxSwaps = 3

// swap fetches the files of a snapshot and makes them the session's. The present ones are
// put into a snapshot before, unless they are to be discarded.
func (s *Sessions) swap(ctx context.Context, state law.State, by dormouse.Actor, m dormouse.Snapshot, to uint64, discard bool) (swap dormouse.WorkspaceSwap, err error) {
	for n := 1; ; n++ {
		// Check first: taking a snapshot of the present files may be expensive.
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
		swap, err = s.prepareSwap(ctx, state, m, dormouse.SwapRestored, "")
		if err != nil {
			return swap, err
		}
		swap.Replaced = replaced
		v.WorkspaceSwap = swap
		if err = s.Do(ctx, state.Session, by, v); !refused(err) {
			return swap, err
		}
		s.releaseSwap(ctx, state.Session, swap)
		now, peeked := s.Peek(ctx, state.Session)
		if moved := now.Workspace.Touched > 0 || now.Workspace.Number != state.Workspace.Number; peeked != nil || !moved || n == maxSwaps {
			return swap, err
		}
		state = now // files were changed meanwhile, or they were sealed
	}
}

// keepReplaced makes sure that a snapshot has the present files of a session, because the
// swap destroys the only other copy of them. It returns the ID of that snapshot, or none if
// there are no files, and the session's state after that. A snapshot that has lost a blob
// does not count: another one is taken of the files themselves. If that fails, nothing is
// replaced.
func (s *Sessions) keepReplaced(ctx context.Context, state law.State, by dormouse.Actor) (dormouse.SnapshotID, law.State, error) {
	id, there := state.PresentSnapshot()
	if there && id == "" {
		return "", state, nil
	}
	if there {
		if err := s.checkChain(ctx, state); err == nil || !history.IsLost(err) {
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

// checkChain checks that the blobs of a session's newest snapshot are there.
func (s *Sessions) checkChain(ctx context.Context, state law.State) error {
	if s.config.Snapshots == nil {
		return errNoSnapshots
	}
	if err := s.config.Snapshots.Check(ctx, state.Workspace.Chain); err != nil {
		return fmt.Errorf("check snapshot %s, which has the present files: %w", state.Workspace.Newest, err)
	}
	return nil
}

// replacedLabel is the label of a snapshot of files that were replaced.
const replacedLabel = "replaced"

// releaseSwap releases what was fetched for a swap that was refused, unless the session
// has reached that workspace number in another way.
func (s *Sessions) releaseSwap(ctx context.Context, id dormouse.SessionID, swap dormouse.WorkspaceSwap) {
	state, err := s.Peek(ctx, id)
	if err == nil && state.Workspace.Number < swap.Number {
		err = s.config.Snapshots.Release(id, swap.Number)
	}
	if err != nil {
		s.config.Logger.WarnContext(ctx, "layers not released", "session", id, "workspace", swap.Number, "error", err)
	}
}

// Revert goes back to the state before a prompt was taken up: files and conversation.
func (s *Sessions) Revert(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, prompt dormouse.EventID, how RestoreOptions) (dormouse.WorkspaceSwap, error) {
	state, err := s.Peek(ctx, id)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	begun, swapped, err := s.turnStart(ctx, state, prompt)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	to := begun - 1
	var before *law.Snapshot
	for _, p := range state.Snapshots {
		if p.At < begun && !p.Midway && !p.Aside {
			before = &p
		}
	}
	// A swap after that snapshot is nearer to the state before the turn.
	if swapped != nil && (before == nil || before.At < swapped.at) {
		if p, ok := state.Snapshot(swapped.Snapshot); ok {
			before = &p
		} else if swapped.Number == state.Workspace.Number || swapped.Snapshot == "" {
			return s.swap(ctx, state, by, dormouse.Snapshot{ID: swapped.Snapshot, Layers: swapped.Layers}, to, how.Discard)
		}
	}
	if before == nil {
		return dormouse.WorkspaceSwap{}, fmt.Errorf("there is no snapshot from before %s: %w", prompt, dormouse.ErrConflict)
	}
	m, err := s.readManifest(ctx, id, *before)
	if err != nil {
		return dormouse.WorkspaceSwap{}, err
	}
	return s.swap(ctx, state, by, m, to, how.Discard)
}

// swappedAt is a swap and its seq in the log. For a session that began without files and
// had none when the turn began, it names no snapshot and has the seq 0.
type swappedAt struct {
	dormouse.WorkspaceSwap
	at uint64
}

// turnStart finds the seq at which the turn of a prompt began, and the last swap of the
// session's files before it, nil if files came without one. All sessions begin without
// files.
func (s *Sessions) turnStart(ctx context.Context, state law.State, prompt dormouse.EventID) (uint64, *swappedAt, error) {
	swapped := new(swappedAt)
	for after := uint64(0); ; {
		events, err := s.Events(ctx, state.Session, after, history.Page)
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
			case e.Type != dormouse.TurnStarted || state.Truncated(e.Seq):
			case slices.Contains(law.Payload[dormouse.TurnFact](e).Prompts, prompt):
				return e.Seq, swapped, nil
			}
		}
		if len(events) == 0 {
			return 0, nil, fmt.Errorf("prompt %s has not been taken up: %w", prompt, dormouse.ErrNotFound)
		}
	}
}

// mayHaveFiles reports whether a session may have files after an event that it did not
// have at its beginning.
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

// prepareSwap fetches the files of a snapshot, so that no files are given up for some
// that cannot be had, and returns the swap.
func (s *Sessions) prepareSwap(ctx context.Context, state law.State, m dormouse.Snapshot, reason string, origin dormouse.SessionID) (dormouse.WorkspaceSwap, error) {
	if s.config.Snapshots == nil {
		return dormouse.WorkspaceSwap{}, errNoSnapshots
	}
	swap := dormouse.WorkspaceSwap{
		Number: state.Workspace.Number + 1, Snapshot: m.ID, Layers: s.config.Snapshots.Compacted(m.Layers), Reason: reason, Origin: origin,
	}
	if len(m.Layers) == 0 { // it began without files, and they cannot be had
		crash.At(crash.SwapDeciding)
		return swap, nil
	}
	if _, err := s.config.Snapshots.Acquire(ctx, state.Session, swap.Number, swap.Layers, s.feeds.Progress(state.Session)); err != nil {
		return swap, fmt.Errorf("fetch snapshot %s: %w", m.ID, err)
	}
	crash.At(crash.SwapDeciding)
	return swap, nil
}
