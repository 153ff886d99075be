package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/session/actor"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/history"
	"github.com/dormouse-run/dormouse/session/law"
)

// Do asks a session's actor, wherever it is, and returns once the answer is
// durable.
func (s *Sessions) Do(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	err := s.do(ctx, id, by, v)
	if errors.Is(err, law.ErrRepeated) {
		return nil
	}
	return err
}

func (s *Sessions) do(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	err := s.ask(ctx, id, by, v)
	if s.retryable(err, v) {
		return s.retry(ctx, id, by, v, err)
	}
	return err
}

// ask asks once: the actor here, or the server that has it.
func (s *Sessions) ask(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	if owner, ok := s.ownerElsewhere(id); ok {
		if err := s.fleet.Forward(ctx, owner, id, by, v); !errors.Is(err, fleet.ErrUnreached) {
			return err
		}
	}
	err := s.DoHere(ctx, id, by, v)
	if e, ok := fleet.Elsewhere(err); ok {
		return s.fleet.Forward(ctx, e.Owner, id, by, v)
	}
	return err
}

// ownerElsewhere returns which other server owned a session when it was last asked for,
// unless the session is loaded here.
func (s *Sessions) ownerElsewhere(id dormouse.SessionID) (fleet.Server, bool) {
	owner, ok := s.fleet.Owner(id)
	return owner, ok && s.loadedActor(id) == nil
}

// DoHere asks the actor on this server. If another server owns the session, it
// says which. What was asked for before under the same id is law.ErrRepeated.
func (s *Sessions) DoHere(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error {
	do := func() error {
		return s.onActor(ctx, id, func(a *entry) error { return a.Do(ctx, by, v) })
	}
	if law.RuleOf(v).FreesDisk {
		return actor.WithReserve(s.config.ReleaseReserve, do)
	}
	return do()
}

// onActor asks the actor of a session, and the next one if that was being unloaded.
func (s *Sessions) onActor(ctx context.Context, id dormouse.SessionID, ask func(*entry) error) error {
	for {
		a, err := s.actor(ctx, id)
		if err != nil {
			return err
		}
		err = ask(a)
		if !errors.Is(err, actor.ErrDropped) {
			return err
		}
		select {
		case <-a.Quit():
			if err := a.Err(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const (
	// retryFor bounds how long a server that can answer is looked for.
	retryFor = 15 * time.Second
	// retryEvery is how long the answer is given to change.
	retryEvery = 100 * time.Millisecond
)

// retryable reports whether asking again may succeed and cannot repeat anything.
func (s *Sessions) retryable(err error, v law.Verb) bool {
	switch {
	case err == nil || errors.Is(err, fleet.ErrNoLease) || errors.Is(err, fleet.ErrStaleSender):
		return false
	case errors.Is(err, dormouse.ErrUnknownOutcome):
		return law.Repeatable(v)
	case errors.Is(err, fleet.ErrUnreached):
		return true
	}
	return !s.fleet.Alone() && errors.Is(err, dormouse.ErrLeaseLost) // refused: nothing was changed
}

// retry asks until the outcome of a verb is known: another server needs a moment to take
// over, and an actor whose state is uncertain reloads.
func (s *Sessions) retry(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb, err error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, retryFor, fmt.Errorf("nobody could be asked about %s: %w", id, dormouse.ErrLeaseLost))
	defer cancel()
	v = law.Retried(v)
	unknown := false
	for s.retryable(err, v) {
		unknown = unknown || errors.Is(err, dormouse.ErrUnknownOutcome)
		if ended := sleep.For(ctx, retryEvery); ended != nil {
			return unknownOutcome(unknown, fmt.Errorf("%w: %w", ended, err))
		}
		err = s.ask(ctx, id, by, v)
	}
	switch {
	case unknown && errors.Is(err, law.ErrRepeated):
		return nil // as far as can be known, by us
	case err == nil || errors.Is(err, law.ErrRepeated):
		return err
	case !refused(err):
		return unknownOutcome(unknown, err)
	case unknown && s.wasCarriedOut(ctx, id, v, err):
		return nil
	}
	return err
}

// unknownOutcome makes an error say that the outcome is unknown, if it is.
func unknownOutcome(unknown bool, err error) error {
	if err == nil || !unknown || errors.Is(err, dormouse.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", dormouse.ErrUnknownOutcome, err)
}

// refused reports whether an actor has decided a verb and refused it.
func refused(err error) bool {
	for _, refusal := range []error{
		dormouse.ErrNotFound, dormouse.ErrInvalid, dormouse.ErrTooLarge, dormouse.ErrConflict, dormouse.ErrTerminated,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// wasCarriedOut reports whether a verb that is refused now was carried out before. This
// is no column of law.Verbs, because the law cannot tell: the proof is in the store or the
// log, in another place for each of these verbs, and is compared with the verb's own
// fields. All others that may be repeated carry an id that the law looks up itself, or
// are refused only by a session that has ended or was deleted since: that answer is true
// whether or not they were carried out.
func (s *Sessions) wasCarriedOut(ctx context.Context, id dormouse.SessionID, v law.Verb, refusal error) bool {
	switch v := v.(type) { //nolint:gochecksumtype // of the others no refusal needs a proof
	case law.Prompt: // by a session that has ended since
		prior, err := s.config.Store.Prompt(ctx, id, v.ID)
		return err == nil && prior.Body == v.Body
	case law.Send: // likewise; all of it was taken if one of its prompts was
		for _, step := range v.Steps {
			if step.Prompt != nil {
				prior, err := s.config.Store.Prompt(ctx, id, step.Prompt.ID)
				return err == nil && prior.Body == step.Prompt.Body
			}
		}
	case law.Delete:
		return errors.Is(refusal, dormouse.ErrNotFound)
	case law.Swap: // a number is given once
		return s.swapped(ctx, id, v.WorkspaceSwap)
	}
	return false
}

// swapped reports whether a session has gone on with these files under this number.
func (s *Sessions) swapped(ctx context.Context, id dormouse.SessionID, swap dormouse.WorkspaceSwap) bool {
	for after := uint64(0); ; {
		events, err := s.Events(ctx, id, after, history.Page)
		if err != nil || len(events) == 0 {
			return false
		}
		for _, e := range events {
			after = e.Seq
			if e.Type != dormouse.WorkspaceSwapped {
				continue
			}
			if p := law.Payload[dormouse.WorkspaceSwap](e); p.Number == swap.Number {
				return p.Snapshot == swap.Snapshot && p.Reason == swap.Reason
			}
		}
	}
}
