package inside

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// op is one call a runner was asked for.
type op struct {
	call     runner.Call
	accepted chan struct{} // closed once the call is recorded, and begun or in the line for its shell
	done     chan struct{} // closed once the result is kept
	end      chan struct{} // closed to end its processes
	endOnce  sync.Once
	output   recorder
	turn     *shellTurn                    // its place in the line for a shell, nil if it needs none
	victim   atomic.Pointer[runner.Victim] // the process of it that was killed last, if any was

	// The result is written before done is closed and read only after.
	result  runner.Result
	spilled bool // the output is on disk only

	// over is closed once no process of it is supervised. Of a task that is
	// later than done, of anything else earlier.
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

// settle gives an op that nothing runs for its result.
func (o *op) settle(res runner.Result) {
	o.result = res
	close(o.over)
	close(o.done)
}

func (o *op) kill() { o.endOnce.Do(func() { close(o.end) }) }

// lookEvery is how often a command is looked after.
const lookEvery = time.Second

// await returns once over is closed, the time of o is up, it is killed, or the
// runner ends. Until then it looks after the command now and then.
func (o *op) await(ctx context.Context, over <-chan struct{}, look func()) (timedOut, killed bool) {
	var timeout <-chan time.Time
	if d := o.call.Exec.Timeout; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	tick := time.NewTicker(lookEvery)
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
			look()
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

func (o *op) begun() {
	select {
	case <-o.accepted:
	default:
		close(o.accepted)
	}
}

// What every process of an op carries: the op's id, and which runner started
// it. A machine may have two runners with an op of the same name, where one
// session is a copy of another.
const (
	opVariable     = "DORMOUSE_OP"
	runnerVariable = "DORMOUSE_RUNNER"
)
