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

// liveness is whether something in a sandbox may change files without an event. What starts
// after the check is recorded, so that the result holds until then.
type liveness struct {
	seq, generation uint64
	opened          int64         // how many streams were opened before
	answered        chan struct{} // closed when live is set
	live            bool
}

// checkLive asks the sandbox. One that does not answer counts as live.
func (a *Actor) checkLive(ctx context.Context) *liveness {
	l := &liveness{seq: a.state.Seq, generation: a.state.Sandbox.Generation, opened: a.streamsEver.Load(), answered: make(chan struct{}), live: true}
	machine, ok := a.sandbox.live.(sandbox.Machine)
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

// checkLiveAhead checks before the end of a turn is recorded, so that its snapshot does not wait.
func (a *Actor) checkLiveAhead(ctx context.Context) {
	if a.state.TurnNeedsSnapshot() && a.state.Sandbox.Phase == law.SandboxActive && a.streams.Load() == 0 {
		a.liveAhead = a.checkLive(ctx)
	}
}

// liveNow returns a function that waits for the result. The check is repeated if the one
// made ahead may no longer hold.
func (a *Actor) liveNow(ctx context.Context) func() bool {
	s, ahead := a.state, a.liveAhead
	a.liveAhead = nil
	if s.Sandbox.Phase != law.SandboxActive {
		return func() bool { return false }
	}
	if a.streams.Load() > 0 {
		return func() bool { return true }
	}
	if ahead == nil || ahead.generation != s.Sandbox.Generation || ahead.seq < s.Workspace.Touched || ahead.opened != a.streamsEver.Load() ||
		slices.ContainsFunc(s.Ops, func(o law.OpenOp) bool { return law.ChangesFiles(o.Kind) }) {
		ahead = a.checkLive(ctx)
	}
	return func() bool {
		<-ahead.answered
		return ahead.live
	}
}
