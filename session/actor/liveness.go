package actor

import (
	"context"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
)

// usageWithin is how long a sandbox may take to say what runs in it.
const usageWithin = time.Second

// liveness is what a sandbox says to the question whether something in it may change files
// that nothing is recorded of. What starts after the question is recorded, so that the
// answer holds until then.
type liveness struct {
	seq, generation uint64
	opened          int64         // how many streams were opened before
	answered        chan struct{} // closed when live is set
	live            bool
}

// askLive asks the sandbox. One that does not say may have something live.
func (a *Actor) askLive(ctx context.Context) *liveness {
	l := &liveness{seq: a.state.Seq, generation: a.state.Sandbox.Generation, opened: a.opened.Load(), answered: make(chan struct{}), live: true}
	machine, ok := a.box.live.(sandbox.Machine)
	if !ok {
		close(l.answered)
		return l
	}
	a.running.Go(func() {
		defer close(l.answered)
		ctx, cancel := context.WithTimeout(ctx, usageWithin)
		defer cancel()
		u, err := machine.Usage(ctx)
		l.live = err != nil || u.Processes > u.Shells || u.Ops+u.Tasks+u.Terminals > 0
	})
	return l
}

// askLiveAhead asks before a turn's end is recorded, whose point would wait for the answer.
func (a *Actor) askLiveAhead(ctx context.Context) {
	if a.state.OwesPoint() && a.state.Sandbox.Phase == law.SandboxActive && a.streams.Load() == 0 {
		a.asked = a.askLive(ctx)
	}
}

// stillLive returns what waits for the answer. It is asked anew if the one asked for ahead
// may hold no longer, or if what lived then may have ended.
func (a *Actor) stillLive(ctx context.Context) func() bool {
	s, ahead := a.state, a.asked
	a.asked = nil
	if s.Sandbox.Phase != law.SandboxActive {
		return func() bool { return false }
	}
	if a.streams.Load() > 0 {
		return func() bool { return true }
	}
	if ahead == nil || ahead.generation != s.Sandbox.Generation || ahead.seq < s.Workspace.Touched || ahead.opened != a.opened.Load() ||
		slices.ContainsFunc(s.Ops, func(o law.OpenOp) bool { return law.ChangesFiles(o.Kind) }) {
		ahead = a.askLive(ctx)
	}
	return func() bool {
		<-ahead.answered
		return ahead.live
	}
}
