package dormouse

import (
	"encoding/json"
	"time"
)

// Event is one durable fact in a session's log. It is never changed and its
// seq is never reused; the bytes stored are the bytes streamed.
type Event struct {
	Seq     uint64          `json:"seq"`
	ID      EventID         `json:"id"`
	Type    EventType       `json:"type"`
	Thread  ThreadID        `json:"thread,omitempty"`
	Actor   Actor           `json:"actor"`
	Time    time.Time       `json:"time"`
	Payload json.RawMessage `json:"payload,omitempty"`
	// Blob names the payload when it is too large for a row; Payload is then empty until it
	// is fetched.
	Blob Digest `json:"blob,omitempty"`
}

// Lost is the payload of an event whose blob is gone or damaged, wherever people
// or a model read it: the event itself still happened.
type Lost struct {
	Blob Digest `json:"lost"`
}

// EventType says what an event records. A type is never renamed or reused.
type EventType string

// Public events: the vocabulary of the Managed Agents API.
const (
	UserMessage          EventType = "user.message"
	UserInterrupt        EventType = "user.interrupt"
	UserToolConfirmation EventType = "user.tool_confirmation"
	UserCustomToolResult EventType = "user.custom_tool_result"
	SystemMessage        EventType = "system.message"

	AgentMessage       EventType = "agent.message"
	AgentThinking      EventType = "agent.thinking"
	AgentToolUse       EventType = "agent.tool_use"
	AgentToolResult    EventType = "agent.tool_result"
	AgentCustomToolUse EventType = "agent.custom_tool_use"

	SpanModelRequestStart EventType = "span.model_request_start"
	SpanModelRequestEnd   EventType = "span.model_request_end"

	SessionStatusRunning     EventType = "session.status_running"
	SessionStatusIdle        EventType = "session.status_idle"
	SessionStatusRescheduled EventType = "session.status_rescheduled"
	SessionStatusTerminated  EventType = "session.status_terminated"

	SessionThreadStatusRunning     EventType = "session.thread_status_running"
	SessionThreadStatusIdle        EventType = "session.thread_status_idle"
	SessionThreadStatusRescheduled EventType = "session.thread_status_rescheduled"
	SessionThreadStatusTerminated  EventType = "session.thread_status_terminated"

	SessionThreadCreated EventType = "session.thread_created"

	SessionError   EventType = "session.error"
	SessionUsage   EventType = "session.usage"
	SessionUpdated EventType = "session.updated"
	SessionDeleted EventType = "session.deleted"
)

// Facts of our own.
const (
	SessionCreated    EventType = "session.created"
	SessionTagged     EventType = "session.tagged"
	SessionArchived   EventType = "session.archived"
	SessionTerminated EventType = "session.terminated"

	// AgentConfigured is what a session runs with from the next turn on; the last one holds.
	AgentConfigured EventType = "agent.configured"
	ThreadArchived  EventType = "thread.archived"
	// RequestTaken is a request that has an id of its client: sent again it changes
	// nothing.
	RequestTaken EventType = "request.taken"

	PromptQueued    EventType = "prompt.queued"
	PromptCompleted EventType = "prompt.completed"
	PromptCancelled EventType = "prompt.cancelled"

	TurnStarted EventType = "turn.started"
	TurnBlocked EventType = "turn.blocked"
	TurnResumed EventType = "turn.resumed"
	TurnEnded   EventType = "turn.ended"

	AttemptStarted EventType = "attempt.started"
	AttemptEnded   EventType = "attempt.ended"

	OpStarted  EventType = "op.started"
	OpFinished EventType = "op.finished"
	OpUnknown  EventType = "op.unknown"

	QuestionAsked    EventType = "question.asked"
	QuestionAnswered EventType = "question.answered"
	QuestionExpired  EventType = "question.expired"

	WakeupScheduled EventType = "wakeup.scheduled"
	WakeupFired     EventType = "wakeup.fired"
	WakeupCancelled EventType = "wakeup.cancelled"

	ChildSpawned EventType = "child.spawned"
	ChildStarted EventType = "child.started"
	ChildEnding  EventType = "child.ending"
	ChildEnded   EventType = "child.ended"
	// ParentTold says that the parent of this session has recorded its end.
	ParentTold EventType = "parent.told"

	// ExecAsked is a command of a person or a program. Its id is the command's.
	ExecAsked    EventType = "exec.asked"
	ExecEnding   EventType = "exec.ending"
	ExecRefused  EventType = "exec.refused"
	ExecAnswered EventType = "exec.answered"

	SandboxWarming  EventType = "sandbox.warming"
	SandboxStarted  EventType = "sandbox.started"
	SandboxStopping EventType = "sandbox.stopping"
	SandboxStopped  EventType = "sandbox.stopped"
	SandboxLost     EventType = "sandbox.lost"
	SandboxStirred  EventType = "sandbox.stirred"
	SandboxRelieved EventType = "sandbox.relieved"

	SnapshotAskedFor EventType = "snapshot.asked"
	SnapshotTaken    EventType = "snapshot.taken"
	SnapshotSkipped  EventType = "snapshot.skipped"
	SnapshotDeleted  EventType = "snapshot.deleted"

	WorkspaceSwapped   EventType = "workspace.swapped"
	WorkspaceRecovered EventType = "workspace.recovered"
	WorkspaceTouched   EventType = "workspace.touched"
	HistoryTruncated   EventType = "history.truncated"

	AttentionRaised  EventType = "attention.raised"
	AttentionCleared EventType = "attention.cleared"

	// EventDamaged stands in an archive for an event that could not be read any more.
	EventDamaged EventType = "damaged"
)

// Audience says to which readers an event is shown.
type Audience int

// The audiences, each containing the next.
const (
	// ForEveryone is the public vocabulary, shown by every door.
	ForEveryone Audience = iota
	// ForPeople is shown by our own doors only.
	ForPeople
	// ForCore is bookkeeping that no door shows unasked.
	ForCore
)

// Audience returns to which readers events of this type are shown. An unknown type is
// treated as an internal one of a newer version.
func (t EventType) Audience() Audience {
	switch t {
	case UserMessage, UserInterrupt, UserToolConfirmation, UserCustomToolResult, SystemMessage,
		AgentMessage, AgentThinking, AgentToolUse, AgentToolResult, AgentCustomToolUse,
		SpanModelRequestStart, SpanModelRequestEnd,
		SessionStatusRunning, SessionStatusIdle, SessionStatusRescheduled, SessionStatusTerminated,
		SessionThreadStatusRunning, SessionThreadStatusIdle, SessionThreadStatusRescheduled, SessionThreadStatusTerminated,
		SessionThreadCreated, SessionError, SessionUsage, SessionUpdated, SessionDeleted:
		return ForEveryone
	case PromptQueued, PromptCancelled, OpUnknown, SessionTagged, SessionArchived,
		QuestionAsked, QuestionAnswered, QuestionExpired,
		WakeupScheduled, WakeupFired, WakeupCancelled,
		ChildSpawned, ChildStarted, ChildEnding, ChildEnded,
		ExecAsked, ExecEnding, ExecRefused, ExecAnswered,
		SandboxWarming, SandboxStarted, SandboxStopping, SandboxStopped, SandboxLost, SandboxStirred, SandboxRelieved,
		SnapshotAskedFor, SnapshotTaken, SnapshotSkipped, SnapshotDeleted, WorkspaceSwapped, WorkspaceRecovered, HistoryTruncated:
		return ForPeople
	case SessionCreated, SessionTerminated, AgentConfigured, RequestTaken, ThreadArchived, PromptCompleted, TurnStarted, TurnBlocked, TurnResumed, TurnEnded,
		AttemptStarted, AttemptEnded, OpStarted, OpFinished, ParentTold, AttentionRaised, AttentionCleared, WorkspaceTouched, EventDamaged:
		return ForCore
	}
	return ForCore
}
