package law

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/dormouse-run/dormouse"
)

// MaxAttempt is the last attempt of a turn. The first try is attempt 0, so five
// crashes are survived and the sixth ends the turn.
const MaxAttempt = 5

// MaxQueue bounds the prompts that wait on one thread.
const MaxQueue = 1000

// Decision is what a command leads to.
type Decision struct {
	Events []dormouse.Event // that record it; none if there is nothing to do
	State  State            // with the events applied
	Rows   dormouse.Rows    // that the events change, without those that Finish adds
}

// Decide answers a command, or says why it is refused. It reads nothing but its
// arguments.
func Decide(s State, c Command) (Decision, error) {
	d := &draft{State: s, c: c, rules: byKind}
	if err := d.decide(); err != nil {
		return Decision{}, err
	}
	return Decision{d.events, d.State, d.rows}, nil
}

func (d *draft) decide() error {
	r, ok := d.rules[reflect.TypeOf(d.c.Verb)]
	if !ok {
		return fmt.Errorf("unknown verb %T: %w", d.c.Verb, dormouse.ErrInvalid)
	}
	if v, ok := d.c.Verb.(Create); ok {
		return d.create(v)
	}
	if d.Seq == 0 {
		return dormouse.ErrNotFound
	}
	if d.Terminated != nil && !r.AfterEnd && !d.repeats() {
		return dormouse.ErrTerminated
	}
	if d.Deleted && r.Hidden {
		return dormouse.ErrNotFound
	}
	return r.decide(d, d.c.Verb)
}

// Wanted is what should be going on in a state. The actor compares it with what
// is going on, after every event and after every restart.
type Wanted struct {
	// Take lists the prompts whose turn can start.
	Take []WantedTake
	// Attempts lists the attempts that should be running. One that carries an
	// older epoch than the actor's is lost and must be recovered.
	Attempts []WantedAttempt
	// Start lists the turns whose next attempt should start, and when.
	Start []WantedStart
	// Kill lists ops in the sandbox whose turn is over: they must end, and how
	// they ended must be recorded.
	Kill []dormouse.OpID
	// Execs lists the commands of people and programs that are not answered.
	Execs []Exec
	// Sandbox says what the sandbox should be doing.
	Sandbox WantedSandbox
	// Snapshot is the snapshot that should be taken of the workspace, if one should.
	Snapshot *WantedSnapshot
	// Sleep is when an idle sandbox should be stopped.
	Sleep time.Time
	// Expire is when the first open question is no longer answered.
	Expire time.Time
	// Fire lists the scheduled wake-ups; each is due at its time.
	Fire []Wakeup
	// Children lists the children that should be made, or ended.
	Children []WantedChild
	// TellParent says that the parent must be told that this session has ended, until the
	// parent has recorded it. Until then it counts as one of the parent's children.
	TellParent bool
	// Delete says that nothing is left to end, and the session can be removed.
	Delete bool
}

type (
	// WantedTake is a prompt whose turn can start.
	WantedTake struct {
		Thread dormouse.ThreadID
		Prompt dormouse.PromptRecord
	}
	// WantedAttempt is an attempt that should be running.
	WantedAttempt struct {
		Thread dormouse.ThreadID
		Work
		Epoch uint64
	}
	// WantedStart is a turn whose next attempt should start.
	WantedStart struct {
		Turn dormouse.TurnID
		// Since is when the attempt before it ended.
		Since, Until time.Time
	}
	// WantedChild is a child that should be made from the log's event Seq, or ended.
	WantedChild struct {
		ID  dormouse.SessionID
		Seq uint64
		End bool
	}
	// WantedSandbox is where the sandbox should be going.
	WantedSandbox struct {
		Phase      SandboxPhase
		Generation uint64
		How        string
		Saved      bool
		Handle     json.RawMessage
		// Keep says that what runs in a stopping sandbox should be kept.
		Keep bool
	}
)

// Want says what should be going on in this state.
func Want(s State) Wanted {
	w := Wanted{Sandbox: WantedSandbox{
		Phase: s.Sandbox.Phase, Generation: s.Sandbox.Generation, How: s.Sandbox.How,
		Saved: s.Sandbox.Saved, Handle: s.Sandbox.Handle, Keep: s.Terminated == nil && !s.Workspace.Fresh,
	}}
	w.Snapshot = WantSnapshot(s)
	// The snapshot of a turn is taken before the next one changes anything.
	waits := w.Snapshot != nil && w.Snapshot.Awaited()
	// So is what people did since, also if that has to wait until the sandbox has started
	// or stopped.
	waits = waits || beforeTurn(s) > 0
	for _, t := range s.Threads {
		switch {
		case s.Terminated != nil:
		case t.Turn == nil && len(t.Queue) > 0 && !waits:
			w.Take = append(w.Take, WantedTake{Thread: t.ID, Prompt: t.Queue[0]})
		case t.Turn == nil || t.Turn.Blocked != "":
		case t.Turn.Epoch == 0:
			w.Start = append(w.Start, WantedStart{Turn: t.Turn.ID, Since: t.Turn.Since, Until: t.Turn.Until})
		default:
			w.Attempts = append(w.Attempts, WantedAttempt{
				Thread: t.ID, Epoch: t.Turn.Epoch, Work: Work{Turn: t.Turn.ID, Attempt: t.Turn.Attempt},
			})
		}
	}
	for _, o := range s.Ops {
		if o.Kind.InSandbox() && s.TurnOf(o.Origin.Turn) == nil && (s.Terminated != nil || !s.isExec(o.Op)) {
			w.Kill = append(w.Kill, o.ID)
		}
	}
	w.Sleep, w.Expire = sleepAt(s), expireAt(s)
	for _, c := range s.Children {
		if end := c.Ending || s.Terminated != nil; end || !c.Started {
			w.Children = append(w.Children, WantedChild{ID: c.ID, Seq: c.Seq, End: end})
		}
	}
	if s.Terminated == nil {
		w.Fire, w.Execs = s.Wakeups, s.Execs
	}
	w.TellParent = s.ParentUntold
	w.Delete = s.Deleted && !s.ParentUntold && w.Snapshot == nil && s.Sandbox.Phase == SandboxCold && len(s.Children) == 0 && len(w.Kill) == 0
	return w
}

// Warm reports whether a sandbox should be started because it is waited for: by a command
// of a person or a program, or by an attempt or a visitor that the state does not know.
func (w Wanted) Warm(demand bool) bool {
	return w.Sandbox.Phase == SandboxCold && (demand || len(w.Execs) > 0)
}

// Attach reports whether a sandbox that runs should be reached: to end or to run something
// in it, or for an attempt or a visitor that the state does not know.
func (w Wanted) Attach(demand bool) bool {
	return w.Sandbox.Phase == SandboxActive && (demand || len(w.Kill) > 0 || len(w.Execs) > 0)
}

// Due reports whether the attempt may start. If the attempt before it ended in the
// future, the clock was set back since, and it has waited long enough.
func (w WantedStart) Due(now time.Time) bool { return !now.Before(w.Until) || now.Before(w.Since) }

// Busy reports whether anything is wanted at once, or after a pause that is not
// worth unloading the session for.
func (w Wanted) Busy() bool {
	return len(w.Take) > 0 || len(w.Attempts) > 0 || len(w.Start) > 0 || len(w.Kill) > 0 || len(w.Children) > 0 || len(w.Execs) > 0 || w.TellParent || w.Delete || w.Snapshot != nil ||
		w.Sandbox.Phase == SandboxWarming || w.Sandbox.Phase == SandboxStopping
}

// Alarm is the earliest of a session's deadlines, or the zero time.
func Alarm(s State) time.Time {
	var first time.Time
	for _, at := range deadlines(s) {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// deadlines lists the stored times at which something is due.
func deadlines(s State) (due []time.Time) {
	for _, t := range s.Threads {
		if t.Turn != nil && t.Turn.Epoch == 0 && t.Turn.Blocked == "" && !t.Turn.Until.IsZero() {
			due = append(due, t.Turn.Until)
		}
	}
	if at := sleepAt(s); !at.IsZero() {
		due = append(due, at)
	}
	for _, o := range s.Ops {
		if !o.Expires.IsZero() {
			due = append(due, o.Expires)
		}
	}
	if s.Terminated == nil {
		for _, w := range s.Wakeups {
			due = append(due, w.At)
		}
	}
	return due
}

// expireAt is when the first open question is no longer answered.
func expireAt(s State) time.Time {
	var at time.Time
	for _, o := range s.Ops {
		if !o.Expires.IsZero() && (at.IsZero() || o.Expires.Before(at)) {
			at = o.Expires
		}
	}
	return at
}

// sleepAt is when the sandbox has been idle long enough. It is not idle as long
// as an op is open in it, whether or not anybody waits for that op.
func sleepAt(s State) time.Time {
	at := IdleSince(s)
	if s.IdleTimeout() == 0 || at.IsZero() {
		return time.Time{}
	}
	return at.Add(s.IdleTimeout())
}

// IdleSince is since when the sandbox has not been in use, zero if it is in use or if there
// is none.
func IdleSince(s State) time.Time {
	if s.Sandbox.Phase != SandboxActive || s.Terminated != nil {
		return time.Time{}
	}
	for _, o := range s.Ops {
		if o.Kind.InSandbox() {
			return time.Time{}
		}
	}
	if len(s.Execs) > 0 {
		return time.Time{}
	}
	for _, t := range s.Threads {
		if len(t.Queue) > 0 || t.Turn != nil && t.Turn.Blocked == "" {
			return time.Time{}
		}
	}
	at := s.IdleSince
	if s.Sandbox.LastBusy.After(at) {
		at = s.Sandbox.LastBusy
	}
	return at
}

// IdleTimeout is how long the sandbox may be idle, by its session or by the server
// that started it, whichever is less. Zero is for ever.
func (s State) IdleTimeout() time.Duration {
	if s.SleepAfter == 0 || s.Sandbox.IdleTimeout == 0 {
		return max(s.SleepAfter, s.Sandbox.IdleTimeout)
	}
	return min(s.SleepAfter, s.Sandbox.IdleTimeout)
}

// PhaseOf derives the word people see.
func PhaseOf(s State) dormouse.Phase {
	phase, _ := derive(s)
	return phase
}

// StatusOf derives the status of the Managed Agents API.
func StatusOf(s State) dormouse.Status {
	_, status := derive(s)
	if status == dormouse.StatusIdle && s.promptReady() {
		return dormouse.StatusRunning // the sender of the message must not take it for answered
	}
	return status
}

// ThreadStatus derives the status of one thread.
func ThreadStatus(s State, t Thread) dormouse.Status {
	switch {
	case s.Terminated != nil || !t.Archived.IsZero():
		return dormouse.StatusTerminated
	case t.Turn == nil && len(t.Queue) > 0:
		return dormouse.StatusRunning
	case t.Turn == nil || t.Turn.Blocked != "":
		return dormouse.StatusIdle
	case t.Turn.Epoch == 0:
		return dormouse.StatusRescheduling
	}
	return dormouse.StatusRunning
}

// derive is the table of docs/session.md, the first match first. With several
// threads a session runs as long as one of them does.
func derive(s State) (dormouse.Phase, dormouse.Status) {
	var running, between, people, recovery bool
	for _, t := range s.Threads {
		switch {
		case t.Turn == nil:
		case t.Turn.Blocked == dormouse.BlockedOnPeople:
			people = true
		case t.Turn.Blocked == dormouse.BlockedOnRecovery:
			recovery = true
		case t.Turn.Epoch == 0:
			between = true
		default:
			running = true
		}
	}
	switch {
	case s.Terminated != nil:
		return dormouse.PhaseTerminated, dormouse.StatusTerminated
	case running:
		return dormouse.PhaseRunning, dormouse.StatusRunning
	case between:
		return dormouse.PhaseRunning, dormouse.StatusRescheduling
	case people:
		return dormouse.PhaseWaiting, dormouse.StatusIdle
	case recovery:
		return dormouse.PhaseInterrupted, dormouse.StatusIdle
	case s.Attention() != nil:
		return dormouse.PhaseError, dormouse.StatusIdle
	case s.Sandbox.Phase == SandboxWarming && s.Sandbox.How == dormouse.WarmRestore:
		return dormouse.PhaseWaking, dormouse.StatusIdle
	case s.Sandbox.Phase == SandboxWarming:
		return dormouse.PhaseCreating, dormouse.StatusIdle
	case s.Sandbox.Phase == SandboxStopping:
		return dormouse.PhaseHibernating, dormouse.StatusIdle
	case s.Sandbox.Phase == SandboxCold && s.Sandbox.Generation > 0:
		return dormouse.PhaseHibernated, dormouse.StatusIdle
	}
	return dormouse.PhaseReady, dormouse.StatusIdle
}
