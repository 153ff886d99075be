package runner

import (
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
)

// lull is how long an op that is over may stay with its runner. Whoever ran one
// command often runs the next at once, and should not find the runner busy with
// the one before.
const lull = 200 * time.Millisecond

// maxForgets bounds the ops that one frame has forgotten.
const maxForgets = 1000

// forgets are the ops that the runner was not told to forget yet. All of it must
// be used with the link's mu held.
type forgets struct {
	ops []dormouse.OpID
	now bool        // they are sent with what is sent next
	due *time.Timer // runs while there are some
}

// Forget tells the runner that an op's result is durable elsewhere. It is told a
// little later, but before anything is asked of it that could tell the difference.
// What is lost with a connection stays with the runner, which names it when it is
// back.
func (l *Link) Forget(op dormouse.OpID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.peer == nil {
		return
	}
	f := &l.forgets
	f.ops = append(f.ops, op)
	switch len(f.ops) {
	case 1:
		f.due.Reset(lull)
	case maxForgets:
		f.now = true
		l.peer.nudge()
	}
}

// nudge has the runner told.
func (l *Link) nudge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgets.now = true
	if l.peer != nil {
		l.peer.nudge()
	}
}

// before has the runner told before it is sent a request that is about one of the
// ops, or may be.
func (f *forgets) before(request Frame) {
	switch request.Kind { //nolint:exhaustive // the rest may be about any of them
	case KindStart:
		f.now = f.now || slices.Contains(f.ops, request.Call.Op)
	case KindWait:
		f.now = f.now || slices.Contains(f.ops, request.Op)
	default:
		f.now = true
	}
}

// take returns what is to be sent now, if there is anything.
func (f *forgets) take(fence Fence) []byte {
	if !f.now {
		return nil
	}
	ops := f.ops
	f.ops, f.now = nil, false
	f.due.Stop()
	if len(ops) == 0 {
		return nil
	}
	frame, err := AppendFrame(nil, Frame{Kind: KindForget, Fence: &fence, Ops: ops})
	if err != nil {
		return nil // it is only space
	}
	return frame
}
