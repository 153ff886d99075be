package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
)

// Create makes a session and returns its row. A child is made by its parent,
// which must be there to end it.
func (s *Sessions) Create(ctx context.Context, by dormouse.Actor, c dormouse.Created) (dormouse.SessionRow, error) {
	if c.Session == "" {
		c.Session = dormouse.SessionID(NewID(dormouse.SessionPrefix))
	}
	if c.Parent == "" {
		var err error
		if c.Environment, err = s.config.completeEnvironment(c.Environment); err != nil {
			return dormouse.SessionRow{}, fmt.Errorf("environment: %w", err)
		}
		return s.create(ctx, by, c, nil)
	}
	if !c.Environment.IsZero() {
		return dormouse.SessionRow{}, fmt.Errorf("a child has the environment of its parent: %w", dormouse.ErrInvalid)
	}
	if err := s.Do(ctx, c.Parent, by, law.Spawn{Spawned: dormouse.Spawned{Child: c}}); err != nil {
		return dormouse.SessionRow{}, fmt.Errorf("spawn from %s: %w", c.Parent, err)
	}
	return s.awaitChild(ctx, c.Parent, c.Session)
}

// CreateAsked makes a session together with what it is asked first, and returns it
// as it begins. One whose id is taken is refused with dormouse.ErrConflict.
func (s *Sessions) CreateAsked(ctx context.Context, by dormouse.Actor, c dormouse.Created, prompts []law.Prompt) (law.State, error) {
	var err error
	if c.Environment, err = s.config.completeEnvironment(c.Environment); err != nil {
		return law.State{}, fmt.Errorf("environment: %w", err)
	}
	state, _, err := s.writeFirst(ctx, by, law.Create{Created: c, Prompts: prompts}, nil)
	return state, err
}

// completeEnvironment completes the environment of a new session with what the driver gives,
// or says why there can be none such.
func (c *Config) completeEnvironment(e dormouse.Environment) (dormouse.Environment, error) {
	if err := e.Validate(); err != nil {
		return e, err
	}
	f, ok := c.Driver.(sandbox.EnvironmentResolver)
	switch {
	case ok:
		return f.ResolveEnvironment(e)
	case e.Network == dormouse.NetworkOn: // nothing keeps them from it
		e.Network = ""
		return c.completeEnvironment(e)
	case !e.Equal(dormouse.Environment{Snapshots: e.Snapshots}):
		return e, fmt.Errorf("the sandboxes of this server are all alike: they take no image, network, packages or limits of their own: %w", dormouse.ErrInvalid)
	}
	return e, nil
}

// awaitChild waits for a child that was spawned. It exists once its parent has made it,
// and never if the parent had to end first.
func (s *Sessions) awaitChild(ctx context.Context, parent, child dormouse.SessionID) (Row, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		above, ended := s.Row(ctx, parent) // before the child is looked for, which may come between
		row, err := s.Row(ctx, child)
		if !errors.Is(err, dormouse.ErrNotFound) {
			return row, err
		}
		if ended == nil && above.Status == dormouse.StatusTerminated {
			ended = dormouse.ErrTerminated
		}
		if ended != nil {
			return Row{}, fmt.Errorf("%s was not made: parent %s: %w", child, parent, ended)
		}
		if sleep.For(ctx, wait) != nil {
			return Row{}, context.Cause(ctx)
		}
	}
}

// create writes a session's first events; under fences those of a child by its
// parent's epoch.
func (s *Sessions) create(ctx context.Context, by dormouse.Actor, c dormouse.Created, under *dormouse.Fence) (dormouse.SessionRow, error) {
	return s.createWith(ctx, by, law.Create{Created: c}, under)
}

// storeFirst stores a session's first events. If the answer is lost, the session is looked
// up: no other caller makes a session of this id, so that one that exists is ours.
func (s *Sessions) storeFirst(ctx context.Context, b store.Batch) error {
	err := s.config.Store.Create(ctx, b)
	if !errors.Is(err, dormouse.ErrUnknownOutcome) {
		return err
	}
	for errors.Is(err, dormouse.ErrUnknownOutcome) {
		if sleep.For(ctx, retryEvery) != nil {
			return err
		}
		err = s.config.Store.Create(ctx, b)
	}
	if err == nil || errors.Is(err, dormouse.ErrConflict) {
		return nil
	}
	return fmt.Errorf("%w: %w", dormouse.ErrUnknownOutcome, err)
}

// NewID draws an id.
func NewID(prefix string) string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails: it ends the process instead
	return dormouse.FormatID(prefix, bits)
}
