package law

import (
	"fmt"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Exec is a command that a person or a program asked for and that is not
// answered. Its text is in the log.
type Exec struct {
	ID dormouse.EventID `json:"id"`
	// Seq is where it was asked for.
	Seq uint64 `json:"seq"`
	// Op is empty until it was sent to a sandbox.
	Op dormouse.OpID `json:"op,omitempty"`
	// Ending says that a client wants it ended.
	Ending bool `json:"ending,omitempty"`
}

func (s State) exec(id dormouse.EventID) *Exec {
	for i := range s.Execs {
		if s.Execs[i].ID == id {
			return &s.Execs[i]
		}
	}
	return nil
}

// run accepts a command. The same id twice is one command, and another command under
// the same id is refused.
func (d *draft) run(v Run) error {
	again, err := d.again(string(v.Exec), func(e dormouse.Event) bool { return SameExec(e, v.ExecAsk) })
	if again || d.exec(v.Exec) != nil {
		return err
	}
	if err := v.Validate(); err != nil {
		return err
	}
	if len(d.Execs) >= dormouse.MaxExecs {
		return fmt.Errorf("%d commands are not answered yet: %w", len(d.Execs), dormouse.ErrConflict)
	}
	d.addNamed(v.Exec, dormouse.ExecAsked, "", d.c.By, v.ExecAsk)
	switch d.Sandbox.Phase {
	case SandboxActive:
		if d.c.Reached != d.Sandbox.Generation {
			return nil // it may be gone; the op is recorded once it answers
		}
		return d.startExec(StartExec{Exec: v.Exec, Args: dormouse.DigestOf(dormouse.Encode(v.ExecAsk))})
	case SandboxCold:
		return d.warm()
	case SandboxWarming, SandboxStopping: // it waits for the next one
	}
	return nil
}

// SameExec reports whether a command is the one that e recorded.
func SameExec(e dormouse.Event, ask dormouse.ExecAsk) bool {
	return e.Type == dormouse.ExecAsked && Payload[dormouse.ExecAsk](e) == ask
}

// startExec records the op of a command before any byte of it leaves.
func (d *draft) startExec(v StartExec) error {
	e := d.exec(v.Exec)
	switch {
	case e == nil || e.Op != "":
		return fmt.Errorf("command %s does not wait: %w", v.Exec, dormouse.ErrConflict)
	case d.Sandbox.Phase != SandboxActive || d.c.Reached != d.Sandbox.Generation:
		return fmt.Errorf("sandbox %d is not active: %w", d.Sandbox.Generation, dormouse.ErrConflict)
	}
	d.openOp("", dormouse.Op{
		Kind: dormouse.OpExec, Args: v.Args, Generation: d.Sandbox.Generation, Use: v.Exec,
		Origin: dormouse.Origin{Command: string(v.Exec)},
	}.Named(d.Session), time.Time{})
	return nil
}

// endExec asks for the end of a command. One that was not sent is answered.
func (d *draft) endExec(v EndExec) error {
	e := d.exec(v.Exec)
	switch {
	case e == nil:
		return fmt.Errorf("command %s does not run: %w", v.Exec, dormouse.ErrNotFound)
	case e.Op == "":
		d.answerExec(dormouse.ExecAnswer{Exec: v.Exec, Exit: -1, Killed: true, Error: "ended before it began"})
	case !e.Ending:
		d.add(dormouse.ExecEnding, "", dormouse.ExecAnswer{Exec: v.Exec})
	}
	return nil
}

// finishExec records how a command ended.
func (d *draft) finishExec(op OpenOp, v FinishOp) error {
	if len(v.Events) == 0 && d.Terminated != nil { // it was killed with the session
		d.record(dormouse.ExecAnswered, "", dormouse.ExecAnswer{Exec: op.Use, Exit: -1, Killed: true, Error: "the session was terminated"})
		d.endOp("", op, dormouse.OpEnd{Outcome: v.Outcome})
		return nil
	}
	if len(v.Events) != 1 || v.Events[0].Type != dormouse.ExecAnswered {
		return fmt.Errorf("op %s answers a command and brings no answer: %w", op.ID, dormouse.ErrInvalid)
	}
	d.addNamed(v.Events[0].ID, dormouse.ExecAnswered, "", dormouse.ActorServer, v.Events[0].Payload)
	d.endOp("", op, dormouse.OpEnd{Outcome: v.Outcome, Result: v.Events[0].ID})
	return nil
}

// answerExec answers a command that never began.
func (d *draft) answerExec(a dormouse.ExecAnswer) { d.record(dormouse.ExecRefused, "", a) }

// refuseExecs answers the commands that no sandbox will ever take.
func (d *draft) refuseExecs(why string) {
	for _, e := range slices.Clone(d.Execs) {
		if e.Op == "" {
			d.answerExec(dormouse.ExecAnswer{Exec: e.ID, Exit: -1, Error: why})
		}
	}
}

// isExec reports whether an op is that of a command which is not answered.
func (s State) isExec(o dormouse.Op) bool {
	e := s.exec(o.Use)
	return o.Origin.Turn == "" && e != nil && e.Op == o.ID
}

func applyExec(s *State, e dormouse.Event) {
	switch e.Type { //nolint:exhaustive // the rest are not about commands
	case dormouse.ExecAsked:
		s.Execs = append(s.Execs, Exec{ID: e.ID, Seq: e.Seq})
	case dormouse.ExecEnding:
		if x := s.exec(Payload[dormouse.ExecAnswer](e).Exec); x != nil {
			x.Ending = true
		}
	case dormouse.ExecRefused:
		id := Payload[dormouse.ExecAnswer](e).Exec
		closeExec(s, e.Time, func(x Exec) bool { return x.ID == id })
	}
}

// closeExec closes a command that is answered.
func closeExec(s *State, at time.Time, answered func(Exec) bool) {
	i := slices.IndexFunc(s.Execs, answered)
	if i < 0 {
		return
	}
	s.Execs = slices.Delete(s.Execs, i, i+1)
	s.IdleSince = at
}
