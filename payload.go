package dormouse

import (
	"encoding/json"
	"strconv"
	"time"
)

// The payloads of public events hold exactly the fields the Managed Agents API
// gives them, less id, type and processed_at, which every event has.

// Message is the payload of user.message, agent.message and system.message.
type Message struct {
	Content []Block `json:"content"`
}

// ToolUse is the payload of agent.tool_use and agent.custom_tool_use, which has no
// permission.
type ToolUse struct {
	Name       string          `json:"name"`
	Input      json.RawMessage `json:"input"`
	Permission Permission      `json:"evaluated_permission,omitempty"` // allow or ask
	Evaluation *Evaluation     `json:"evaluation,omitempty"`
}

// Evaluation says by which policy a tool call was allowed or must be asked for.
type Evaluation struct {
	Type string `json:"type"`
	// Permission is what was judged, if that was left to the server.
	Permission *JudgedPermission `json:"evaluated_permission,omitempty"`
}

// The types of Evaluation.
const (
	AlwaysAllow = "always_allow"
	AlwaysAsk   = "always_ask"
	AutoJudged  = "auto"
)

// JudgedPermission is what the server judged of a tool call.
type JudgedPermission struct {
	Type Permission `json:"type"`
	// Reason says why it is asked for.
	Reason string `json:"reason_code,omitempty"`
}

// ReasonIndeterminate says that the server cannot tell what a call would do.
const ReasonIndeterminate = "indeterminate"

// ToolResult is the payload of agent.tool_result.
type ToolResult struct {
	Use     EventID `json:"tool_use_id"`
	Content []Block `json:"content,omitempty"`
	IsError bool    `json:"is_error,omitempty"`
}

// CustomToolResult is the payload of user.custom_tool_result.
type CustomToolResult struct {
	Use     EventID `json:"custom_tool_use_id"`
	Content []Block `json:"content,omitempty"`
	IsError bool    `json:"is_error,omitempty"`
}

// ToolConfirmation is the payload of user.tool_confirmation.
type ToolConfirmation struct {
	Use         EventID `json:"tool_use_id"`
	Result      string  `json:"result"` // allow or deny
	DenyMessage string  `json:"deny_message,omitempty"`
}

// ModelUsage counts what one model call cost.
type ModelUsage struct {
	InputTokens              int64 `json:"input_tokens"`
	OutputTokens             int64 `json:"output_tokens"`
	CacheReadInputTokens     int64 `json:"cache_read_input_tokens"`
	CacheCreationInputTokens int64 `json:"cache_creation_input_tokens"`
}

// Add sums two usages.
func (u ModelUsage) Add(v ModelUsage) ModelUsage {
	return ModelUsage{
		InputTokens:              u.InputTokens + v.InputTokens,
		OutputTokens:             u.OutputTokens + v.OutputTokens,
		CacheReadInputTokens:     u.CacheReadInputTokens + v.CacheReadInputTokens,
		CacheCreationInputTokens: u.CacheCreationInputTokens + v.CacheCreationInputTokens,
	}
}

// SpanEnd is the payload of span.model_request_end.
type SpanEnd struct {
	Start   EventID    `json:"model_request_start_id"`
	IsError bool       `json:"is_error"`
	Usage   ModelUsage `json:"model_usage"`
}

// StopReason says why a session went idle.
type StopReason struct {
	Type     string    `json:"type"`
	EventIDs []EventID `json:"event_ids,omitempty"`
}

// The types of StopReason.
const (
	StopEndTurn          = "end_turn"
	StopRequiresAction   = "requires_action"
	StopRetriesExhausted = "retries_exhausted"
	StopRefusal          = "refusal"
)

// Idle is the payload of session.status_idle.
type Idle struct {
	StopReason  StopReason      `json:"stop_reason"`
	StopDetails json.RawMessage `json:"stop_details"`
}

// Details says more about a reason, where there is more to say.
func (r StopReason) Details() json.RawMessage {
	if r.Type == StopRefusal {
		return json.RawMessage(`{"type":"refusal","category":null,"explanation":null}`)
	}
	return json.RawMessage("null")
}

// ThreadStatus is the payload of session.thread_status_running and its like.
type ThreadStatus struct {
	Thread      ThreadID        `json:"session_thread_id"`
	AgentName   string          `json:"agent_name"`
	StopReason  *StopReason     `json:"stop_reason,omitempty"`
	StopDetails json.RawMessage `json:"stop_details,omitempty"`
}

// Usage is the payload of session.usage.
type Usage struct {
	Usage UsageTotal `json:"usage"`
}

// UsageTotal is what a session has used so far.
type UsageTotal struct {
	InputTokens          int64         `json:"input_tokens"`
	OutputTokens         int64         `json:"output_tokens"`
	CacheReadInputTokens int64         `json:"cache_read_input_tokens"`
	CacheCreation        CacheCreation `json:"cache_creation"`
	ListCost             Money         `json:"list_cost"`
	ActiveSeconds        float64       `json:"active_seconds"`
}

// CacheCreation counts the tokens that were put into a provider's cache, by how
// long they stay there.
type CacheCreation struct {
	OneHour     int64 `json:"ephemeral_1h_input_tokens"`
	FiveMinutes int64 `json:"ephemeral_5m_input_tokens"`
}

// Money is an amount in whole cents.
type Money struct {
	Currency string `json:"currency"`
	Amount   string `json:"amount"`
}

// Total is what model calls used and cost so far, in millionths of a dollar, while
// the session was active.
func Total(u ModelUsage, micros int64, active time.Duration) UsageTotal {
	const microsPerCent = 10_000
	return UsageTotal{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadInputTokens: u.CacheReadInputTokens,
		CacheCreation: CacheCreation{FiveMinutes: u.CacheCreationInputTokens},
		ListCost:      Money{Currency: "USD", Amount: strconv.FormatInt((micros+microsPerCent/2)/microsPerCent, 10)},
		ActiveSeconds: active.Seconds(),
	}
}

// Update is the payload of session.updated: what changed. A title that is null
// is cleared, metadata is whole.
type Update struct {
	Title    *string           `json:"title,omitempty"`
	Metadata map[string]string `json:"metadata,omitzero"` // empty says that none is left
	// Agent is the whole agent as the door that changed it shows it.
	Agent json.RawMessage `json:"agent,omitempty"`
}

// AgentChange is the payload of agent.configured.
type AgentChange struct {
	Agent AgentConfig `json:"agent"`
}

// Taken is the payload of request.taken: which request, and what was in it.
type Taken struct {
	Request EventID `json:"request"`
	Body    Digest  `json:"body"`
}

// ThreadCreated is the payload of session.thread_created.
type ThreadCreated struct {
	Thread    ThreadID `json:"session_thread_id"`
	AgentName string   `json:"agent_name"`
	// WorkflowRun is always null: threads here are opened by people.
	WorkflowRun *string `json:"workflow_run_id"`
}

// Failure is the payload of session.error.
type Failure struct {
	Error FailureDetail `json:"error"`
}

// FailureDetail says what went wrong and whether it is tried again.
type FailureDetail struct {
	Type        string      `json:"type"`
	Message     string      `json:"message"`
	RetryStatus RetryStatus `json:"retry_status"`
}

// RetryStatus is retrying, exhausted or terminal.
type RetryStatus struct {
	Type string `json:"type"`
}

// The payloads of our own facts.

// Tagging is the payload of session.tagged: every tag the session has now.
type Tagging struct {
	Tags []string `json:"tags"`
}

// PromptBody is the payload of prompt.queued. Its public id is Prompt, which the
// user.message that takes it will carry.
type PromptBody struct {
	Prompt  EventID `json:"prompt"`
	Body    Digest  `json:"body"`
	Content []Block `json:"content"`
	// System follows the message when it is taken, if there is one.
	System *SystemBody `json:"system,omitempty"`
}

// SystemBody is a system message that belongs to a prompt.
type SystemBody struct {
	ID      EventID `json:"id"`
	Content []Block `json:"content"`
}

// Prompts is the payload of prompt.completed and prompt.cancelled.
type Prompts struct {
	Prompts []EventID `json:"prompts"`
	Reason  string    `json:"reason,omitempty"`
}

// TurnFact is the payload of turn.started, turn.resumed and turn.ended.
type TurnFact struct {
	Turn    TurnID    `json:"turn"`
	Prompts []EventID `json:"prompts,omitempty"`
	RetryOf TurnID    `json:"retry_of,omitempty"`
	Outcome string    `json:"outcome,omitempty"`
	// Snapshot is the one that will be taken of the workspace as the turn left it, if
	// one will: a snapshot.taken or a snapshot.skipped follows that names it.
	Snapshot SnapshotID `json:"snapshot,omitempty"`
}

// The outcomes of a turn.
const (
	TurnCompleted   = "completed"
	TurnInterrupted = "interrupted"
	TurnFailed      = "failed"
	TurnAbandoned   = "terminated"
)

// Block reasons of a turn.
const (
	BlockedOnPeople   = "people"
	BlockedOnRecovery = "recovery"
)

// Blocked is the payload of turn.blocked.
type Blocked struct {
	Turn TurnID `json:"turn"`
	On   string `json:"on"`
}

// Attempt is the payload of attempt.started and attempt.ended.
type Attempt struct {
	Turn   TurnID `json:"turn"`
	Number int    `json:"attempt"`
	Epoch  uint64 `json:"epoch,omitempty"`
	// Reason says how the attempt ended: lost, failed or returned.
	Reason string `json:"reason,omitempty"`
	// Until is when the next one may start.
	Until time.Time `json:"until,omitzero"`
}

// How an attempt ends before its turn does.
const (
	AttemptLost     = "lost"
	AttemptFailed   = "failed"
	AttemptReturned = "returned"
)

// OpFact is the payload of op.started.
type OpFact struct {
	Op Op `json:"op"`
	// Span is the span.model_request_start of a model call.
	Span EventID `json:"span,omitempty"`
	// Expires is when a question is no longer answered.
	Expires time.Time `json:"expires,omitzero"`
}

// OpEnd is the payload of op.finished and op.unknown.
type OpEnd struct {
	Op   OpID   `json:"op"`
	Kind OpKind `json:"kind"`
	// Outcome is ok, error, interrupted or refused; of an unknown op, why.
	Outcome string     `json:"outcome"`
	Result  EventID    `json:"result,omitempty"`
	Usage   ModelUsage `json:"usage,omitzero"`
	// CostMicros is what a model call cost, in millionths of a dollar.
	CostMicros int64 `json:"cost_micros,omitempty"`
	// Estimated says that usage and cost are not, or not all, the provider's count: the
	// call was cut off.
	Estimated bool `json:"estimated,omitempty"`
	// Uses are the tool calls a model call made that have no result yet.
	Uses []Use `json:"uses,omitempty"`
	// Stop is why a model call without tool calls was the agent's last word.
	Stop string `json:"stop,omitempty"`
	// Partial is the agent.message that holds what was seen of a reply that was cut off.
	Partial EventID `json:"partial,omitempty"`
}

// The outcomes of an op.
const (
	OutcomeOK          = "ok"
	OutcomeError       = "error"
	OutcomeInterrupted = "interrupted"
	OutcomeDenied      = "denied"
	OutcomeExpired     = "expired"
)

// Gate is what a tool call waits for.
type Gate string

// The gates.
const (
	GateNone     Gate = ""
	GateAsk      Gate = "ask"
	GateCustom   Gate = "custom"
	GateQuestion Gate = "question"
)

// Use is one tool call of the current turn that has no result yet.
type Use struct {
	ID    EventID `json:"id"`
	Call  int     `json:"call"`
	Block int     `json:"block"`
	Gate  Gate    `json:"gate,omitempty"`
	// Within is how long a question may be answered.
	Within time.Duration `json:"within,omitempty"`
}

// SandboxFact is the payload of the sandbox events.
type SandboxFact struct {
	Generation uint64 `json:"generation"`
	// How says create or restore.
	How    string          `json:"how,omitempty"`
	Handle json.RawMessage `json:"handle,omitempty"`
	Reason string          `json:"reason,omitempty"`
	// Kept says that the files outlive the sandbox without a snapshot.
	Kept bool `json:"kept,omitempty"`
	// Since is the time from which work may be missing.
	Since time.Time `json:"since,omitzero"`
	// Processes says what became of those that ran: of a sandbox that stopped, or
	// of the one before the one that started. Of lost ones Reason says why.
	Processes string `json:"processes,omitempty"`
	// Image is the digest of what a sandbox that started was made from. All of a
	// session are made from the same, wherever a tag leads later.
	Image string `json:"image,omitempty"`
	// Missing says which packages of its environment a sandbox that started has not,
	// and why.
	Missing string `json:"missing,omitempty"`
	// IdleTimeout is how long the server that started it lets it be idle, whatever
	// its session says.
	IdleTimeout time.Duration `json:"idle_timeout,omitempty"`
	// Snapshots says what is taken of the workspace of a sandbox that started: none
	// at all if it is empty.
	Snapshots SnapshotPolicy `json:"snapshots,omitempty"`
	// Seals says that its workspace is sealed when it has stopped.
	Seals bool `json:"seals,omitempty"`
	// Watched says that workspace.touched is recorded before a visitor is let into it.
	Watched bool `json:"watched,omitempty"`
}

// MaxStirs is how long background tasks and busy processes keep a sandbox awake that is
// otherwise not used.
const MaxStirs = 30 * time.Minute

// What becomes of processes.
const (
	ProcessesKept = "kept"
	ProcessesLost = "lost"
)

// How a sandbox is warmed.
const (
	WarmCreate  = "create"
	WarmRestore = "restore"
)

// Attention is the payload of attention.raised.
type Attention struct {
	Reason string   `json:"reason"`
	Thread ThreadID `json:"thread,omitempty"`
	Turn   TurnID   `json:"turn,omitempty"`
	// Prompts are those of the turn that failed: retry takes them up again.
	Prompts []EventID `json:"prompts,omitempty"`
}

// Termination is the payload of session.terminated.
type Termination struct {
	Reason string `json:"reason"`
	// Parent is the session that has to record it, if there is one and it did not end
	// this one itself.
	Parent SessionID `json:"parent,omitempty"`
}
