package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Follower follows a session as a browser does: when the stream breaks it comes
// back with the last id it saw.
type Follower struct {
	session *Session
	all     bool
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	events  []dormouse.Event           // guarded by mu; as they came
	cursor  uint64                     // guarded by mu; the last id
	deleted bool                       // guarded by mu; the session said that it goes
	texts   map[dormouse.OpID][]string // guarded by mu; fragments of calls seen whole so far
	holed   map[dormouse.OpID]bool     // guarded by mu; calls a broken stream may have cut
	errs    []string                   // guarded by mu
	changed chan struct{}              // guarded by mu; closed when an event comes
}

// Follow follows the session; all says whether the core's own facts are wanted.
func (s *Session) Follow(ctx context.Context, all bool) *Follower {
	f := &Follower{
		session: s, all: all, changed: make(chan struct{}),
		texts: make(map[dormouse.OpID][]string), holed: make(map[dormouse.OpID]bool),
	}
	s.Follower = f
	f.Resume(ctx)
	return f
}

// Resume follows on from the last event that was seen, after a Close.
func (f *Follower) Resume(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.done = make(chan struct{})
	go f.follow(ctx, f.done)
}

func (f *Follower) follow(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		err := f.stream(ctx)
		f.mu.Lock()
		for op := range f.texts {
			f.holed[op] = true
		}
		over := f.deleted && Missing(err)
		if r := Refused(err); r != nil && !Again(err) && !over && ctx.Err() == nil {
			f.errs = append(f.errs, fmt.Sprintf("the stream was refused: %d %s: %s", r.Status, r.Code, r.Message))
		}
		if errors.Is(err, client.ErrGarbled) {
			f.errs = append(f.errs, err.Error())
		}
		f.mu.Unlock()
		if over || sleep.For(ctx, 2*time.Millisecond) != nil {
			return
		}
	}
}

// Close stops following.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
}

// Changed is closed when the next event comes.
func (f *Follower) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Seen lists the events as they came.
func (f *Follower) Seen() []dormouse.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]dormouse.Event(nil), f.events...)
}

// All reports whether the follower asked for the core's own facts.
func (f *Follower) All() bool { return f.all }

// Texts is what was seen of model calls while no stream broke, in fragments.
func (f *Follower) Texts() map[dormouse.OpID][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.texts)
}

// Errs lists what a follower must never meet.
func (f *Follower) Errs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.errs...)
}

// Reaches waits until the follower has seen seq.
func (f *Follower) Reaches(ctx context.Context, seq uint64) error {
	for {
		f.mu.Lock()
		cursor, changed := f.cursor, f.changed
		f.mu.Unlock()
		if cursor >= seq {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the follower is at %d, not at %d: %w", cursor, seq, context.Cause(ctx))
		}
	}
}

// Next waits for the next event of a type among those after the first n, and
// returns how many there are up to it.
func (f *Follower) Next(ctx context.Context, n int, t dormouse.EventType) (int, error) {
	for {
		f.mu.Lock()
		for ; n < len(f.events); n++ {
			if f.events[n].Type == t {
				f.mu.Unlock()
				return n + 1, nil
			}
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return n, fmt.Errorf("the follower waits for %s: %w", t, context.Cause(ctx))
		}
	}
}

// stream reads one connection to its end. A client with patience leaves one that
// says nothing for too long, and asks elsewhere. It takes what comes as it comes: whether
// anything came twice is for the oracle to say.
func (f *Follower) stream(ctx context.Context) error {
	l, err := f.session.door.Live(ctx)
	if err != nil {
		return err
	}
	to, err := f.session.at(l)
	if err != nil {
		return err
	}
	o := client.FollowOptions{Deltas: true, All: f.all, Silence: f.session.Patience}
	if o.Silence == 0 {
		o.Silence = time.Hour
	}
	f.mu.Lock()
	o.After = f.cursor
	f.mu.Unlock()
	s, err := to.OpenStream(ctx, f.session.ID, o)
	if err != nil {
		if Refused(err) == nil {
			f.session.door.Blame(l)
		}
		return err
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err != nil {
			return err
		}
		f.take(e)
	}
}

func (f *Follower) take(e client.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := e.Delta; d != nil {
		if d.Op != "" && !f.holed[d.Op] {
			f.texts[d.Op] = append(f.texts[d.Op], d.Text)
		}
		return
	}
	f.events = append(f.events, e.Event)
	f.deleted = f.deleted || e.Type == dormouse.SessionDeleted
	f.cursor = e.Seq
	close(f.changed)
	f.changed = make(chan struct{})
}
