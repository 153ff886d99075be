package dormouse

import "fmt"

// LogVersion is the newest version of the log that this program can fold. It rises by
// one whenever a type of event is added, and whenever the meaning of folding an event
// changes: a program that does not know of the change would go on from a wrong state.
// EventType.Version says which events need it.
//
// In a rolling upgrade older servers go on with every session whose log needs no more
// than they know, and leave the others to newer ones.
const LogVersion = 1

// Version is the least version of the log that a program must know to fold an event of
// this type: the one that the type came with, or that gave it the meaning it has. A type
// that this program does not know is of a later version than its own.
func (t EventType) Version() int {
	switch t {
	case UserMessage, UserInterrupt, UserToolConfirmation, UserCustomToolResult, SystemMessage,
		AgentMessage, AgentThinking, AgentToolUse, AgentToolResult, AgentCustomToolUse,
		SpanModelRequestStart, SpanModelRequestEnd,
		SessionStatusRunning, SessionStatusIdle, SessionStatusRescheduled, SessionStatusTerminated,
		SessionThreadStatusRunning, SessionThreadStatusIdle, SessionThreadStatusRescheduled, SessionThreadStatusTerminated,
		SessionThreadCreated, SessionError, SessionUsage, SessionUpdated, SessionDeleted,
		SessionCreated, SessionTagged, SessionArchived, SessionTerminated,
		AgentConfigured, ThreadArchived, RequestTaken,
		PromptQueued, PromptCompleted, PromptCancelled,
		TurnStarted, TurnBlocked, TurnResumed, TurnEnded, AttemptStarted, AttemptEnded,
		OpStarted, OpFinished, OpUnknown,
		QuestionAsked, QuestionAnswered, QuestionExpired,
		WakeupScheduled, WakeupFired, WakeupCancelled,
		ChildSpawned, ChildStarted, ChildEnding, ChildEnded, ParentTold,
		ExecAsked, ExecEnding, ExecRefused, ExecAnswered,
		SandboxWarming, SandboxStarted, SandboxStopping, SandboxStopped, SandboxLost, SandboxStirred, SandboxRelieved,
		SnapshotAskedFor, SnapshotTaken, SnapshotSkipped, SnapshotDeleted,
		WorkspaceSwapped, WorkspaceRecovered, WorkspaceTouched, HistoryTruncated,
		AttentionRaised, AttentionCleared, EventDamaged:
		return 1
	}
	return LogVersion + 1
}

// NewerLogError says that a log needs a newer program than this one. It is ErrNewerLog.
type NewerLogError struct {
	Session SessionID
	// Needs is the least version of the log that a program must know to fold it.
	Needs int
	// Type is the event that this program does not know, if it came upon one.
	Type EventType
}

func (e *NewerLogError) Error() string {
	why := fmt.Sprintf("its log needs version %d", e.Needs)
	if e.Type != "" {
		why = fmt.Sprintf("its log has %q events", e.Type)
	}
	return fmt.Sprintf("session %s is of a newer program: %s and this one knows version %d; nothing was changed, ask a server of the newer version or upgrade this one",
		e.Session, why, LogVersion)
}

func (e *NewerLogError) Unwrap() error { return ErrNewerLog }
