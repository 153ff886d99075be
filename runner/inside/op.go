package inside

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// op is one call that the runner has accepted.
type op struct {
	call     runner.Call
	accepted chan struct{} // closed once the call is journaled, and started or waiting for its shell
	done     chan struct{} // closed once the result is journaled
	end      chan struct{} // closed to end its processes
	endOnce  sync.Once
	output   recorder
	turn     *shellTurn                    // its turn on a shell, nil if it needs none
	victim   atomic.Pointer[runner.Victim] // the process of it that the OOM killer killed last, if any

	// The result is written before done is closed and read only after.
	result  runner.Result
	spilled bool // the output is on disk only

	// over is closed once no process of it is supervised. For a task that is after
	// done, for every other op before.
	over chan struct{}
}

func newOp(c runner.Call) *op {
	return &op{
		call:     c,
		accepted: make(chan struct{}),
		done:     make(chan struct{}),
		end:      make(chan struct{}),
		over:     make(chan struct{}),
	}
}

// complete sets the result of an op that has no process.
func (o *op) complete(res runner.Result) {
	o.result = res
	close(o.over)
	close(o.done)
}

func (o *op) kill() { o.endOnce.Do(func() { close(o.end) }) }

// checkEvery is how often a running command is checked.
const checkEvery = time.Second

// await returns once over is closed, o times out, o is killed, or the runner ends. It
// calls check periodically until then.
func (o *op) await(ctx context.Context, over <-chan struct{}, check func()) (timedOut, killed bool) {
	var timeout <-chan time.Time
	if d := o.call.Exec.Timeout; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return false, false
		case <-timeout:
			return true, false
		case <-o.end:
			return false, true
		case <-ctx.Done():
			return false, true
		case <-tick.C:
			check()
		}
	}
}

func (o *op) finished() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

func (o *op) markAccepted() {
	select {
	case <-o.accepted:
	default:
		close(o.accepted)
	}
}

// The environment variables of every process of an op: the op's id, and the PID of its
// runner. A machine may have two runners with an op of the same id, if one session is a
// branch of another.
const (
	opVariable     = "DORMOUSE_OP"
	runnerVariable = "DORMOUSE_RUNNER"
)
