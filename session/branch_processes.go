package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
)

// needsProcesses reports whether what runs must be taken along.
func (b BranchAsk) needsProcesses() bool { return b.Processes != nil && *b.Processes }

// hibernatedGeneration is the generation with which a session hibernated, 0 if no
// processes are to be copied. It hibernates the session if that is wanted.
func (s *Sessions) hibernatedGeneration(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, ask BranchAsk) (uint64, error) {
	if _, ok := s.config.Driver.(sandbox.Brancher); !ok || ask.Snapshot != "" || ask.Processes != nil && !*ask.Processes {
		if ask.needsProcesses() && ok {
			return 0, fmt.Errorf("what ran at a snapshot is not kept; branch from the present: %w", dormouse.ErrConflict)
		} else if ask.needsProcesses() {
			return 0, fmt.Errorf("what runs in these sandboxes cannot be taken along: %w", dormouse.ErrConflict)
		}
		return 0, nil
	}
	state, err := s.Peek(ctx, id)
	if err == nil && ask.needsProcesses() {
		state, err = s.hibernate(ctx, state, by)
	}
	if err != nil || state.Sandbox.Phase != law.SandboxCold {
		return 0, err
	}
	return state.Sandbox.Generation, nil
}

// hibernate hibernates an idle session, and returns its state then.
func (s *Sessions) hibernate(ctx context.Context, state law.State, by dormouse.Actor) (law.State, error) {
	if state.Works() {
		return state, fmt.Errorf("the session is at work; branch when it rests: %w", dormouse.ErrConflict)
	}
	f, err := s.followFrom(ctx, state.Session, state.Seq)
	if err != nil {
		return state, err
	}
	defer func() { f.Close() }()
	if state.Sandbox.Phase == law.SandboxActive {
		if err := s.Do(ctx, state.Session, by, law.Hibernate{}); err != nil {
			return state, err
		}
	}
	for {
		if state, err = s.Peek(ctx, state.Session); err != nil || state.Sandbox.Phase == law.SandboxCold {
			return state, err
		}
		if _, err = f.Next(ctx); errors.Is(err, dormouse.ErrBehind) {
			at := f.Cursor()
			f.Close()
			f, err = s.followFrom(ctx, state.Session, at)
		}
		if err != nil {
			return state, err
		}
	}
}

// copyProcesses has the processes of a hibernated session copied for its branch, and
// reports whether there were any.
func (s *Sessions) copyProcesses(ctx context.Context, from dormouse.SessionID, generation uint64, to dormouse.SessionID, ask BranchAsk) (bool, error) {
	brancher, ok := s.config.Driver.(sandbox.Brancher)
	if !ok {
		return false, nil
	}
	err := s.Under(ctx, func(ctx context.Context) error { return brancher.Branch(ctx, from, generation, to) })
	switch {
	case err == nil:
		return true, nil
	case ask.needsProcesses() && errors.Is(err, sandbox.ErrNoMemoryImage):
		return false, fmt.Errorf("%w: %w", err, dormouse.ErrConflict)
	case ask.needsProcesses() || ctx.Err() != nil:
		return false, err
	case !errors.Is(err, sandbox.ErrNoMemoryImage):
		s.config.Logger.WarnContext(ctx, "branch starts without the processes of its parent", "session", from, "branch", to, "error", err)
	}
	return false, nil
}
