package law

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Apply folds one event into the state. It cannot fail: the log is the truth. A
// reader refuses a log with events that this program does not know (see version.go),
// so that none of them is folded as nothing.
func Apply(s State, e dormouse.Event) State {
	s = s.Clone()
	worked, last := s.Works(), s.Updated
	s.Seq, s.Updated, s.Needs = e.Seq, e.Time, max(s.Needs, e.Type.Version())
	apply(&s, e)
	clock(&s, e, worked, last)
	return s
}

func apply(s *State, e dormouse.Event) {
	switch e.Type {
	case dormouse.SessionCreated:
		ApplyCreated(s, Payload[dormouse.Created](e), e.Time)
	case dormouse.SessionTerminated:
		p := Payload[dormouse.Termination](e)
		s.Terminated, s.ParentUntold = &Ending{Reason: p.Reason, At: e.Time}, p.Parent != ""
		clearAttention(s, "")
	case dormouse.ParentTold:
		s.ParentUntold = false
	case dormouse.PromptQueued:
		if t := s.Thread(e.Thread); t != nil {
			t.Queue = append(slices.Clip(t.Queue), dormouse.PromptRecord{
				ID: e.ID, Thread: e.Thread, Status: dormouse.PromptIsQueued,
				Body: Payload[BodyOnly](e).Body, Seq: e.Seq, Queued: e.Time,
			})
		}
		if s.Title == "" && !s.Titled {
			s.Title = dormouse.TitleOf(Payload[dormouse.PromptBody](e).Content)
		}
	case dormouse.PromptCancelled:
		p := Payload[dormouse.Prompts](e)
		if t := s.Thread(e.Thread); t != nil {
			t.Queue = slices.DeleteFunc(slices.Clone(t.Queue), func(q dormouse.PromptRecord) bool { return slices.Contains(p.Prompts, q.ID) })
		}
	case dormouse.TurnStarted:
		applyTurnStarted(s, e)
	case dormouse.TurnBlocked:
		p := Payload[dormouse.Blocked](e)
		if t := s.TurnOf(p.Turn); t != nil {
			t.Turn.Blocked, t.Turn.Epoch, t.Turn.Until = p.On, 0, time.Time{}
			s.IdleSince = e.Time
		}
	case dormouse.TurnResumed:
		if t := s.TurnOf(Payload[dormouse.TurnFact](e).Turn); t != nil {
			t.Turn.Blocked = ""
		}
	case dormouse.TurnEnded:
		if t := s.TurnOf(Payload[dormouse.TurnFact](e).Turn); t != nil {
			t.Turn = nil
			s.IdleSince = e.Time
		}
		if s.TurnNeedsSnapshot() {
			s.Workspace.Used, s.Workspace.Due = false, e.Seq
		}
	case dormouse.AttemptStarted:
		p := Payload[dormouse.Attempt](e)
		if t := s.TurnOf(p.Turn); t != nil {
			t.Turn.Attempt, t.Turn.Epoch, t.Turn.Until = p.Number, p.Epoch, time.Time{}
		}
	case dormouse.AttemptEnded:
		p := Payload[dormouse.Attempt](e)
		if t := s.TurnOf(p.Turn); t != nil {
			t.Turn.Epoch, t.Turn.Until, t.Turn.Since = 0, p.Until, e.Time
			if p.Reason != dormouse.AttemptReturned {
				t.Turn.Attempt = p.Number + 1
			}
		}
	case dormouse.OpStarted:
		p := Payload[dormouse.OpFact](e)
		s.Ops = append(s.Ops, OpenOp{Op: p.Op, Span: p.Span, Started: e.Time, Expires: p.Expires})
		if ChangesFiles(p.Op.Kind) {
			s.Workspace.Used, s.Workspace.Touched = true, e.Seq
		}
		if t := s.TurnOf(p.Op.Origin.Turn); t != nil && p.Op.Kind == dormouse.OpModel {
			t.Turn.Calls, t.Turn.Redo = p.Op.Origin.Call, nil
		}
		if x := s.exec(p.Op.Use); x != nil && p.Op.Origin.Turn == "" {
			x.Op = p.Op.ID
		}
	case dormouse.OpFinished, dormouse.OpUnknown:
		p := Payload[dormouse.OpEnd](e)
		applyOpEnd(s, p)
		closeExec(s, e.Time, func(x Exec) bool { return x.Op == p.Op })
	case dormouse.ExecAsked, dormouse.ExecEnding, dormouse.ExecRefused, dormouse.ExecAnswered:
		applyExec(s, e) // an answer closes nothing: the end of its op does
	case dormouse.SandboxWarming:
		p := Payload[dormouse.SandboxFact](e)
		s.Sandbox = Sandbox{Phase: SandboxWarming, Generation: p.Generation, How: p.How}
	case dormouse.SandboxStarted:
		p := Payload[dormouse.SandboxFact](e)
		s.Sandbox.Phase, s.Sandbox.Handle, s.Sandbox.IdleTimeout = SandboxActive, p.Handle, p.IdleTimeout
		s.Workspace.Policy, s.Workspace.Seals, s.Workspace.Open, s.Workspace.Fresh = p.Snapshots, p.Seals, true, false
		if p.Processes == dormouse.ProcessesKept || !p.Watched { // no event says what runs on, or which visitors are there
			s.Workspace.Touched = e.Seq
		}
		s.IdleSince = e.Time
		if s.Image == "" {
			s.Image = p.Image
		}
	case dormouse.SandboxStopping:
		s.Sandbox.Phase, s.Sandbox.Saved = SandboxStopping, Payload[dormouse.SandboxFact](e).Kept
	case dormouse.SandboxStirred:
		s.Sandbox.LastBusy = e.Time
	case dormouse.SandboxStopped, dormouse.SandboxLost:
		s.Sandbox = Sandbox{Generation: s.Sandbox.Generation}
		if s.Workspace.Live { // what it did up to now
			s.Workspace.Touched, s.Workspace.Live = e.Seq, false
		}
	case dormouse.SnapshotAskedFor, dormouse.SnapshotTaken, dormouse.SnapshotSkipped, dormouse.SnapshotDeleted,
		dormouse.WorkspaceSwapped, dormouse.WorkspaceTouched, dormouse.WorkspaceRecovered, dormouse.HistoryTruncated:
		applySnapshot(s, e)
	case dormouse.AttentionRaised:
		applyAttention(s, Payload[dormouse.Attention](e))
	case dormouse.AttentionCleared:
		clearAttention(s, e.Thread)
	case dormouse.SessionUpdated, dormouse.SessionTagged, dormouse.SessionArchived, dormouse.SessionDeleted:
		applyDescription(s, e)
	case dormouse.AgentConfigured:
		s.Config, s.Agent = e.Seq, Payload[dormouse.AgentChange](e).Agent.Name
	case dormouse.SessionThreadCreated:
		s.Threads = append(s.Threads, Thread{ID: Payload[dormouse.ThreadCreated](e).Thread, Created: e.Time})
	case dormouse.ThreadArchived:
		if t := s.Thread(e.Thread); t != nil {
			t.Archived = e.Time
		}
	case dormouse.WakeupScheduled, dormouse.WakeupFired, dormouse.WakeupCancelled:
		applyWakeup(s, e)
	case dormouse.ChildSpawned, dormouse.ChildStarted, dormouse.ChildEnding, dormouse.ChildEnded:
		applyChild(s, e)
	case dormouse.UserMessage, dormouse.AgentMessage:
		s.Messages++
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		s.ToolCalls++
	case dormouse.PromptCompleted, dormouse.RequestTaken, dormouse.QuestionAsked, dormouse.QuestionAnswered, dormouse.QuestionExpired,
		dormouse.UserInterrupt, dormouse.UserToolConfirmation, dormouse.UserCustomToolResult, dormouse.SystemMessage,
		dormouse.AgentThinking, dormouse.AgentToolResult,
		dormouse.SpanModelRequestStart, dormouse.SpanModelRequestEnd,
		dormouse.SessionStatusRunning, dormouse.SessionStatusIdle, dormouse.SessionStatusRescheduled, dormouse.SessionStatusTerminated,
		dormouse.SessionThreadStatusRunning, dormouse.SessionThreadStatusIdle,
		dormouse.SessionThreadStatusRescheduled, dormouse.SessionThreadStatusTerminated,
		dormouse.SessionError, dormouse.SessionUsage, dormouse.SandboxRelieved, dormouse.EventDamaged:
		// What people are told follows from the facts above and changes none.
	}
}

// clock counts the time in which at least one turn was active. The time from the last
// event before a crash until the recovery does not count: nothing worked on the turn
// then.
func clock(s *State, e dormouse.Event, worked bool, last time.Time) {
	lost := e.Type == dormouse.AttemptEnded && Payload[dormouse.Attempt](e).Reason == dormouse.AttemptLost
	works := s.Works()
	if worked && (lost || !works) {
		until := e.Time
		if lost {
			until = last
		}
		s.Active += max(until.Sub(s.ActiveSince), 0)
		s.ActiveSince = time.Time{}
	}
	if works && s.ActiveSince.IsZero() {
		s.ActiveSince = e.Time
	}
}

// Folds reports whether Apply reads the payload of events of this type, so that
// a loader must fetch one that was too large for its row.
func Folds(t dormouse.EventType) bool {
	if t == dormouse.ExecAsked || t == dormouse.ExecAnswered {
		return false // they are large, and what matters of them is elsewhere
	}
	return t.Audience() != dormouse.ForEveryone || t == dormouse.SessionUpdated || t == dormouse.SessionThreadCreated
}

// BodyOnly is the part of a queued prompt that State keeps.
type BodyOnly struct {
	Body dormouse.Digest `json:"body"`
}

// Payload reads what an event carries.
func Payload[T any](e dormouse.Event) T {
	var p T
	_ = json.Unmarshal(e.Payload, &p) // what cannot be read folds as empty: Apply cannot fail
	return p
}

// ApplyCreated begins a state with what a session was made with.
func ApplyCreated(s *State, p dormouse.Created, at time.Time) {
	s.Session, s.Tenant, s.Owner, s.Parent, s.Depth = p.Session, p.Tenant, p.Owner, p.Parent, p.Depth
	if s.Offspring = p.Offspring; p.Depth == 0 {
		s.Offspring = dormouse.MaxOffspring
	}
	s.Title, s.Titled, s.Tags, s.Metadata = p.Title, p.Title != "", dormouse.CleanTags(p.Tags), p.Metadata
	s.Agent, s.Recovery, s.FlushOnError, s.SleepAfter = p.Agent.Name, p.Recovery, p.FlushOnError, p.SleepAfter
	s.AgentID, s.AgentVersion = p.Agent.ID, p.Agent.Version
	s.Environment, s.EnvironmentID = p.Environment, p.EnvironmentID
	s.Created, s.IdleSince = at, at
	s.Threads = []Thread{{ID: dormouse.PrimaryThread(p.Session), Created: at}}
	if p.Branch != nil {
		s.Shell = p.Branch.Shell
	}
}

// applyTurnStarted moves the turn's prompts from the queue, or from the turn it
// takes up again, into the turn.
func applyTurnStarted(s *State, e dormouse.Event) {
	p := Payload[dormouse.TurnFact](e)
	t := s.Thread(e.Thread)
	if t == nil {
		return
	}
	turn := &Turn{ID: p.Turn, Config: s.Config}
	take := func(from []dormouse.PromptRecord) (rest []dormouse.PromptRecord) {
		for _, q := range from {
			if !slices.Contains(p.Prompts, q.ID) {
				rest = append(rest, q)
				continue
			}
			q.Status, q.Turn = dormouse.PromptIsProcessing, p.Turn
			turn.Prompts = append(turn.Prompts, q)
		}
		return rest
	}
	t.Queue = take(t.Queue)
	if t.Attention != nil && p.RetryOf != "" {
		take(t.Attention.Prompts)
	}
	t.Turn = turn
	s.Workspace.Before, s.Workspace.Behind = 0, 0
}

// applyOpEnd closes an op. Its tool call has its result now, unless the op only
// asked whether the call may run.
func applyOpEnd(s *State, p dormouse.OpEnd) {
	op, ok := s.Op(p.Op)
	if !ok {
		return
	}
	s.Ops = slices.DeleteFunc(s.Ops, func(o OpenOp) bool { return o.ID == p.Op })
	if ChangesFiles(op.Kind) {
		s.Workspace.Touched = s.Seq
		if op.Origin.Turn != "" && s.Workspace.Policy == dormouse.SnapshotsByCall {
			s.Workspace.Calls = append(slices.Clip(s.Workspace.Calls), Called{Seq: s.Seq, Turn: op.Origin.Turn})
		}
	}
	s.Usage, s.CostMicros = s.Usage.Add(p.Usage), s.CostMicros+p.CostMicros
	t := s.TurnOf(op.Origin.Turn)
	if t == nil {
		return
	}
	if op.Kind == dormouse.OpModel {
		t.Turn.Uses, t.Turn.Stop = append(t.Turn.Uses, p.Uses...), p.Stop
		if p.Outcome != dormouse.OutcomeOK {
			t.Turn.Redo = &Redo{Op: op.ID, Try: op.Try}
		}
		return
	}
	i := slices.IndexFunc(t.Turn.Uses, func(u dormouse.Use) bool { return u.ID == op.Use })
	switch {
	case i < 0:
	case op.Kind == dormouse.OpApproval && p.Outcome == dormouse.OutcomeOK:
		t.Turn.Uses[i].Gate = dormouse.GateNone
	default:
		t.Turn.Uses = slices.Delete(t.Turn.Uses, i, i+1)
	}
}

func applyAttention(s *State, p dormouse.Attention) {
	a := &Attention{Reason: p.Reason, Turn: p.Turn}
	if t := s.TurnOf(p.Turn); t != nil {
		for _, q := range t.Turn.Prompts {
			if slices.Contains(p.Prompts, q.ID) {
				a.Prompts = append(a.Prompts, q)
			}
		}
	}
	if p.Thread == "" { // an error of no particular thread
		p.Thread = dormouse.PrimaryThread(s.Session)
	}
	if t := s.Thread(p.Thread); t != nil {
		t.Attention = a
	}
}

// clearAttention leaves the error of one thread behind, or of all of them.
func clearAttention(s *State, thread dormouse.ThreadID) {
	for i := range s.Threads {
		if thread == "" || s.Threads[i].ID == thread {
			s.Threads[i].Attention = nil
		}
	}
}

// applyDescription folds what people say about a session, and what becomes of it.
func applyDescription(s *State, e dormouse.Event) {
	switch e.Type { //nolint:exhaustive // only these come here
	case dormouse.SessionUpdated:
		p := Payload[dormouse.Update](e)
		if p.Title != nil {
			s.Title, s.Titled = *p.Title, *p.Title != ""
		}
		if p.Metadata != nil {
			s.Metadata = p.Metadata
		}
	case dormouse.SessionTagged:
		s.Tags = Payload[dormouse.Tagging](e).Tags
	case dormouse.SessionArchived:
		s.Archived = e.Time
	case dormouse.SessionDeleted:
		s.Deleted = true
	}
}

func applyWakeup(s *State, e dormouse.Event) {
	if e.Type == dormouse.WakeupScheduled {
		p := Payload[dormouse.Wakeup](e)
		if p.ID == "" {
			return // its body is lost
		}
		s.Wakeups = append(s.Wakeups, Wakeup{ID: p.ID, Thread: e.Thread, Cron: p.Cron, At: p.At, Seq: e.Seq})
		return
	}
	p := Payload[dormouse.WakeupFact](e)
	switch i := s.wakeup(p.ID); {
	case i < 0:
	case p.Next.IsZero():
		s.Wakeups = slices.Delete(s.Wakeups, i, i+1)
	default:
		s.Wakeups[i].At = p.Next
	}
}

func applyChild(s *State, e dormouse.Event) {
	if e.Type == dormouse.ChildSpawned {
		if c := Payload[dormouse.Spawned](e).Child; c.Session != "" { // else its body is lost
			s.Children = append(s.Children, Child{ID: c.Session, Seq: e.Seq, Offspring: c.Offspring})
			s.Offspring -= 1 + c.Offspring
		}
		return
	}
	i := s.Child(Payload[dormouse.ChildFact](e).Child)
	switch {
	case i < 0:
	case e.Type == dormouse.ChildStarted:
		s.Children[i].Started = true
	case e.Type == dormouse.ChildEnding:
		s.Children[i].Ending = true
	default:
		s.Offspring += 1 + s.Children[i].Offspring
		s.Children = slices.Delete(s.Children, i, i+1)
	}
}
