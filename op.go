package dormouse

import (
	"strconv"
	"time"
)

// OpKind says what sort of side effect an op is, and so what its verdict is
// when a crash leaves its outcome open.
type OpKind string

// The kinds of op.
const (
	// OpModel is one call of a model.
	OpModel OpKind = "model_call"
	// OpExec runs a command and waits for it.
	OpExec OpKind = "exec"
	// OpTask starts a command and leaves it running.
	OpTask OpKind = "task"
	// OpWrite writes a file.
	OpWrite OpKind = "file_write"
	// OpRead reads a file; it may run again.
	OpRead OpKind = "file_read"
	// OpCustom is a tool the client runs; only the client can answer it.
	OpCustom OpKind = "custom_tool"
	// OpApproval asks a person whether a tool call may run.
	OpApproval OpKind = "approval"
	// OpQuestion asks people something; it expires.
	OpQuestion OpKind = "question"
	// OpSelf changes the session itself. Its start, its effect and its end are one
	// commit, so that none is ever found open.
	OpSelf OpKind = "self"
	// OpMessage sends a prompt to a child, under an id that follows from the op.
	OpMessage OpKind = "child_message"
	// OpLook reads a child or waits for it; it may run again.
	OpLook OpKind = "child_look"
	// OpSnapshot takes a snapshot of the workspace, under an id that follows from the op.
	OpSnapshot OpKind = "snapshot"
)

// Brought is the id of the n-th event of its type that an op brings, counted from
// 0: known before the op has ended, and the same if it is recorded twice.
func Brought(op OpID, t EventType, n int) EventID {
	return EventID(DeriveID(EventPrefix, string(op), string(t), strconv.Itoa(n)))
}

// SpanOf is the id of the span.model_request_start of a model call.
func SpanOf(op OpID) EventID { return EventID(DeriveID(EventPrefix, string(op), "span")) }

// Verdict is what the next attempt does with an op it finds open.
type Verdict string

// The verdicts.
const (
	// VerdictRepeat: safe to run again under the same id.
	VerdictRepeat Verdict = "repeat"
	// VerdictResend: sent again with the op id as idempotency key.
	VerdictResend Verdict = "resend"
	// VerdictReplace: closed as interrupted; a new op with retry_of follows.
	VerdictReplace Verdict = "replace"
	// VerdictAsk: the runner knows: running, finished or never seen.
	VerdictAsk Verdict = "ask_runner"
	// VerdictUnknown: recorded and shown to agent and people, never sent again.
	VerdictUnknown Verdict = "unknown"
	// VerdictKeep: stays open until a person answers.
	VerdictKeep Verdict = "keep"
)

// Verdict returns what happens to an open op of this kind. sameSandbox says
// that the sandbox it was sent to still lives.
func (k OpKind) Verdict(keyed, sameSandbox bool) Verdict {
	switch k {
	case OpModel:
		if keyed {
			return VerdictResend
		}
		return VerdictReplace
	case OpExec, OpTask, OpWrite:
		if sameSandbox {
			return VerdictAsk
		}
		return VerdictUnknown
	case OpRead, OpSelf, OpMessage, OpLook, OpSnapshot:
		return VerdictRepeat
	case OpCustom, OpApproval, OpQuestion:
		return VerdictKeep
	}
	return VerdictUnknown
}

// InSandbox reports whether ops of this kind are sent to the runner.
func (k OpKind) InSandbox() bool {
	return k == OpExec || k == OpTask || k == OpWrite || k == OpRead
}

// Origin is what asked for an op.
type Origin struct {
	Thread ThreadID `json:"thread,omitempty"`
	Turn   TurnID   `json:"turn,omitempty"`
	// Call is the ordinal of the model call in its turn, from 1.
	Call int `json:"call,omitempty"`
	// Block is the index of the tool use in that call's reply; -1 is the call itself.
	Block int `json:"block"`
	// Command names what a person or program asked for outside any turn.
	Command string `json:"command,omitempty"`
}

// Op is one side effect: recorded before it starts and after it ends.
type Op struct {
	ID     OpID   `json:"id"`
	Kind   OpKind `json:"kind"`
	Args   Digest `json:"args"`
	Origin Origin `json:"origin"`
	// Try counts deliberate repeats and rises only together with RetryOf.
	Try     int  `json:"try,omitempty"`
	RetryOf OpID `json:"retry_of,omitempty"`
	// Generation is the sandbox the op was sent to.
	Generation uint64 `json:"generation,omitempty"`
	// Keyed says that the other side takes the op id as idempotency key.
	Keyed bool `json:"keyed,omitempty"`
	// Use is the tool call the op answers, if it answers one.
	Use EventID `json:"use,omitempty"`
	// Asks is about how many tokens the model is sent, and Price what tokens cost. They
	// estimate the cost of a call that is cut off, which no provider reports.
	Asks  int64      `json:"asks,omitempty"`
	Price ModelPrice `json:"price,omitzero"`
}

// Named returns o with the id that follows from what it is: kind, canonical
// arguments, origin and try.
func (o Op) Named(session SessionID) Op {
	o.ID = OpID(DeriveID(OpPrefix, string(session), string(o.Kind), string(o.Args),
		string(o.Origin.Thread), string(o.Origin.Turn), strconv.Itoa(o.Origin.Call), strconv.Itoa(o.Origin.Block),
		o.Origin.Command, strconv.Itoa(o.Try)))
	return o
}

// OpStatus is where an op stands in the journal.
type OpStatus string

// The statuses of an op.
const (
	OpOpen OpStatus = "started"
	OpDone OpStatus = "finished"
	OpLost OpStatus = "unknown"
)

// OpRecord is the journal's row for an op.
type OpRecord struct {
	Op
	Status   OpStatus  `json:"status"`
	Outcome  string    `json:"outcome,omitempty"`
	Started  time.Time `json:"started_at"`
	Finished time.Time `json:"finished_at,omitzero"`
}
