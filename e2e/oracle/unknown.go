package oracle

import (
	"time"

	"github.com/dormouse-run/dormouse"
)

// judgeUnknown: an op is unknown only where it may have run.
// Its sandbox was lost after it was recorded; and the server that recorded it had
// reached that sandbox, which what it did there before shows.
func (l *journal) judgeUnknown(e Evidence, f Findings) {
	for _, id := range l.order {
		op := l.ops[id]
		if !op.unknown || !op.Kind.InSandbox() {
			continue
		}
		gone, lost := l.boxes.gone[op.Generation]
		if !lost || gone.Before(op.started) {
			f.Add(Diverged, "the outcome of %s was called unknown, and its sandbox %d was not lost since", id, op.Generation)
			continue
		}
		c := l.commands[op.Use]
		if c == nil || len(e.Lives) == 0 || !c.at.Equal(op.started) {
			continue // it was recorded when the sandbox had answered
		}
		if since := lifeAt(e.Lives, op.started); !l.reached(op, since) {
			f.Add(Diverged, "the outcome of command %s was called unknown, and the server that was started at %s never reached sandbox %d: it cannot have run", op.Use, since, op.Generation)
		}
	}
}

// reached reports whether the log shows that the sandbox of an op answered a server
// that was started at a time, before the op was recorded.
func (l *journal) reached(op *entry, since time.Time) bool {
	if since.Before(l.boxes.started[op.Generation]) {
		return true
	}
	for _, other := range l.ops {
		if other.Generation == op.Generation && other.Kind.InSandbox() && other.started.After(since) && other.started.Before(op.started) {
			return true
		}
	}
	return false
}

// lifeAt is when the process was started that ran at a time.
func lifeAt(lives []time.Time, at time.Time) (since time.Time) {
	for _, began := range lives {
		if began.Before(at) {
			since = began
		}
	}
	return since
}

// judgeUsage: what is shown of tokens and cost is what the ops say, each once.
func (l *journal) judgeUsage(e Evidence, f Findings) {
	row, ok := e.row()
	if !ok {
		return
	}
	var usage dormouse.ModelUsage
	var cost int64
	for _, op := range l.ops {
		usage, cost = usage.Add(op.end.Usage), cost+op.end.CostMicros
	}
	if m := row.Metrics; m.ModelUsage != usage || m.CostMicros != cost {
		f.Add(Diverged, "shown are %+v and a cost of %d; the ops say %+v and %d", m.ModelUsage, m.CostMicros, usage, cost)
	}
}
