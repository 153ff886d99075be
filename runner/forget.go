package runner

import (
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
)

// forgetDelay is how long a finished op may stay with its runner. After one command
// the next often follows at once, and should not find the runner busy forgetting.
const forgetDelay = 200 * time.Millisecond

// maxForgets bounds the ops in one forget frame.
const maxForgets = 1000

// forgetBatch is the ops that the runner was not told to forget yet. It is guarded by
// the link's mu.
type forgetBatch struct {
	ops []dormouse.OpID
	now bool        // send it with the next write
	due *time.Timer // runs while the batch is not empty
}

// Forget tells the runner that an op's result is durable elsewhere. The frame is sent
// after forgetDelay, but before any request that could observe the difference. If the
// connection is lost first, the runner keeps the result.
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
		f.due.Reset(forgetDelay)
	case maxForgets:
		f.now = true
		l.peer.wake()
	}
}

// flushForgets sends the batch now.
func (l *Link) flushForgets() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgets.now = true
	if l.peer != nil {
		l.peer.wake()
	}
}

// flushBefore flushes the batch ahead of a request that concerns, or may concern, one
// of its ops.
func (f *forgetBatch) flushBefore(request Frame) {
	switch request.Kind { //nolint:exhaustive // the rest may be about any of them
	case KindStart:
		f.now = f.now || slices.Contains(f.ops, request.Call.Op)
	case KindWait:
		f.now = f.now || slices.Contains(f.ops, request.Op)
	default:
		f.now = true
	}
}

// take returns the forget frame if one is due.
func (f *forgetBatch) take(fence Fence) []byte {
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
		return nil // the runner only keeps more than it needs
	}
	return frame
}
