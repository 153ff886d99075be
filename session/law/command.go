package law

import (
	"encoding/json"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Command is a request to a session's actor. It brings everything the law may not
// determine itself: the actor who asks, the time, the lease, and what was read from
// outside the state.
type Command struct {
	By  dormouse.Actor
	Now time.Time
	// Epoch is the lease of the actor that decides.
	Epoch uint64
	// Reached is the generation of the sandbox that this actor has a link to, 0 if it has
	// none. Only a sandbox that was reached can have run anything for it.
	Reached uint64
	// Seen is the text already seen of model calls that are still open, for verbs
	// that close them.
	Seen map[dormouse.OpID]string
	// Counted is what the providers of such calls have counted, as far as this server
	// has heard.
	Counted map[dormouse.OpID]dormouse.ModelUsage
	// Given is what the ids in the verb were given to before, if they were.
	Given map[string]dormouse.Event
	Verb  Verb
}

// Verb says what a command wants.
//
//sumtype:decl
type Verb interface{ verb() }

// What people and programs ask for.
type (
	// Create makes the session.
	Create struct {
		dormouse.Created
		// Transcript and Files are what a branch begins with. A session of an image begins
		// with Files too.
		Transcript []dormouse.Event   `json:"-"`
		Files      *dormouse.Snapshot `json:"-"`
		// Processes says that it begins with what ran over the files.
		Processes bool `json:"-"`
		// Prompts are what it is asked first.
		Prompts []Prompt `json:"-"`
	}

	// Send is several steps of one request of a client: all of them are recorded, in this
	// order, or none is.
	Send struct {
		Steps []Step
		// Request is the name of the request if its client gave it one, and Body what
		// was in it: the same request twice is one.
		Request dormouse.EventID
		Body    dormouse.Digest
	}

	// Prompt asks the agent something, now or when the turns before it have ended.
	Prompt struct {
		Thread  dormouse.ThreadID
		ID      dormouse.EventID
		Body    dormouse.Digest
		Content []dormouse.Block
		// System is a system message that follows the content.
		System *dormouse.SystemBody `json:",omitempty"`
		// New says that the id was just drawn, so that nothing can be there under it.
		New bool `json:",omitempty"`
		// Under is the session that sends it and the lease under which it does, if one
		// does: a sender that has lost that lease is refused.
		Under *dormouse.Fence `json:",omitempty"`
	}

	// Cancel takes a prompt out of the queue before its turn.
	Cancel struct {
		Prompt dormouse.EventID
		Reason string
	}

	// Interrupt ends the active turn; Flush also empties the queue. Always records it
	// even if nothing runs.
	Interrupt struct {
		Thread dormouse.ThreadID
		ID     dormouse.EventID
		Flush  bool
		Always bool `json:",omitempty"`
	}

	// Answer answers a tool call that waits for people.
	Answer struct {
		ID  dormouse.EventID
		Use dormouse.EventID
		// Allow and Deny answer an approval.
		Allow, Deny bool
		DenyMessage string
		// Content answers a question; Content and IsError answer a custom tool.
		Content []dormouse.Block
		IsError bool
	}

	// OpenThread adds a thread to the session: a queue and a turn of its own.
	OpenThread struct{ Thread dormouse.ThreadID }

	// ArchiveThread ends a thread that is not running, for good. The first one ends
	// with its session.
	ArchiveThread struct{ Thread dormouse.ThreadID }

	// Schedule has the session prompt itself later: at a time, or by a cron expression.
	Schedule struct {
		Thread dormouse.ThreadID
		ID     dormouse.WakeupID
		At     time.Time
		// In is how long after it was asked for, in place of At.
		In      time.Duration `json:",omitempty"`
		Cron    string
		Content []dormouse.Block
	}

	// Unschedule cancels a wake-up.
	Unschedule struct {
		ID     dormouse.WakeupID
		Reason string
	}

	// Spawn makes a child session.
	Spawn struct {
		dormouse.Spawned
		// Rights is what the parent itself may do; the actor knows it.
		Rights dormouse.AgentConfig
	}

	// EndChild ends a child of this session, and its children with it.
	EndChild struct {
		Child  dormouse.SessionID
		Reason string
	}

	// Describe changes the title, the tags, the metadata or the agent of the session. A
	// metadata value that is nil removes its key. Agent is the configuration from the
	// next turn on.
	Describe struct {
		Title    *string
		Tags     *[]string
		Metadata map[string]*string
		Agent    *dormouse.AgentConfig `json:",omitempty"`
	}

	// Archive puts a session that is not running away for good.
	Archive struct{}

	// Delete removes the session and everything only it owned. Resting refuses that
	// while it runs.
	Delete struct {
		Resting bool `json:",omitempty"`
	}

	// Run asks for a command in the sandbox, beside what the agent does.
	Run struct {
		dormouse.ExecAsk
		// New says that the id was just drawn.
		New bool `json:",omitempty"`
	}

	// EndExec asks for the end of a command.
	EndExec struct{ Exec dormouse.EventID }

	// Retry tries again what a crash or an error stopped.
	Retry struct{ Thread dormouse.ThreadID }

	// Continue leaves a turn that a crash stopped as it is and goes on without it.
	Continue struct{ Thread dormouse.ThreadID }

	// Hibernate stops the sandbox; a turn that is not blocked is interrupted first.
	Hibernate struct{}

	// Wake starts a sandbox if there is none.
	Wake struct{}

	// AskSnapshot has a snapshot taken of the workspace as it is. Asked twice for the same
	// it is one.
	AskSnapshot struct{ dormouse.SnapshotAsk }

	// ImportSnapshot adds a snapshot whose layers were brought in and are verified. Asked
	// twice for the same it is one.
	ImportSnapshot struct {
		Ask    dormouse.SnapshotAsk
		Layers []dormouse.Layer
		Keep   dormouse.Retention
	}

	// ForgetSnapshots deletes snapshots. It is idempotent.
	ForgetSnapshots struct{ IDs []dormouse.SnapshotID }

	// Swap replaces the files by those of a snapshot, in the workspace Number.
	Swap struct {
		dormouse.WorkspaceSwap
		// To is the seq of the log to go back to with the conversation; 0 leaves that
		// as it is.
		To uint64
		// Within is set for a tool call, in whose turn the files are swapped.
		Within dormouse.TurnID
		// Discard gives up the files it has; else a snapshot must hold them.
		Discard bool `json:",omitempty"`
	}

	// Terminate ends the session for good.
	Terminate struct{ Reason string }
)

// Step is one thing of a Send: exactly one of its fields is set.
type Step struct {
	Prompt    *Prompt    `json:",omitempty"`
	Interrupt *Interrupt `json:",omitempty"`
	Answer    *Answer    `json:",omitempty"`
	// System is said to the model after what the step before brought, which answered
	// a tool call. One that follows a message is a part of its prompt.
	System *dormouse.SystemBody `json:",omitempty"`
}

// What the actor and the agent loop report.
type (
	// Take starts a turn on the next prompt, whose body the actor has read.
	Take struct {
		Thread  dormouse.ThreadID
		Prompt  dormouse.EventID
		Content []dormouse.Block
		System  *dormouse.SystemBody
	}

	// Recover deals with attempts of a lease before this one.
	Recover struct{}

	// StartAttempt starts the next attempt of a turn that is between attempts.
	StartAttempt struct{ Turn dormouse.TurnID }

	// ReturnAttempt gives an attempt back uncounted: a clean shutdown.
	ReturnAttempt struct{ Turn dormouse.TurnID }

	// FailAttempt ends an attempt that met an error.
	FailAttempt struct {
		Work
		// Error and Message are those of session.error.
		Error, Message string
		// Retry says that another attempt may succeed, not before Until.
		Retry bool
		Until time.Time
	}

	// StartOp records an op before it starts.
	StartOp struct {
		Work
		Op dormouse.Op
	}

	// FinishOp records an op's end and what it brought.
	FinishOp struct {
		Work
		Op      dormouse.OpID
		Outcome string
		Usage   dormouse.ModelUsage
		// CostMicros is what a model call cost; Estimated says that it and Usage are.
		CostMicros int64
		Estimated  bool
		// Events are the public events the op brought: messages, tool calls, results.
		Events []dormouse.Event
		// Uses are the tool calls among Events that have no result among them.
		Uses []dormouse.Use
		// Partial names the one of Events that holds a reply cut short.
		Partial dormouse.EventID
		// Stop says why a reply without tool calls was the agent's last word.
		Stop string
	}

	// ApplyAction answers a tool call whose whole effect is a change of the session
	// itself: effect and result are one commit.
	ApplyAction struct {
		Work
		Use dormouse.EventID
		// Do is the change; nil if there is nothing to change. If it is refused, the
		// agent is told why.
		Do Verb
		// Text is what the agent is told otherwise.
		Text string
		// Failed says why the action cannot be carried out; nothing is changed then.
		Failed error
	}

	// LoseOp records that an op's outcome cannot be known.
	LoseOp struct {
		Op  dormouse.OpID
		Why string
	}

	// Block parks a turn that only people can move.
	Block struct{ Work }

	// EndTurn ends a turn whose agent has said its last word.
	EndTurn struct{ Work }

	// Warm asks for a sandbox on the agent's behalf.
	Warm struct{}

	// StartExec records that a command is about to be sent to the sandbox.
	StartExec struct {
		Exec dormouse.EventID
		Args dormouse.Digest
	}

	// SandboxUp reports that a sandbox answers.
	SandboxUp struct {
		Generation uint64
		Handle     json.RawMessage
		// Kept says that the processes of the generation before run on in it, and
		// Lost why they do not, if that is known.
		Kept bool
		Lost string
		// Image is the digest of what it was made from, and IdleTimeout how long this
		// server lets it be idle.
		Image       string
		IdleTimeout time.Duration
		// Missing says which packages of its environment it has not, and why.
		Missing string
		// Snapshots is when they are taken of its workspace, empty if they cannot be,
		// and Seals whether that is sealed when it has stopped.
		Snapshots dormouse.SnapshotPolicy
		Seals     bool
		// Watched says that Touch is asked for before a visitor is let in.
		Watched bool
	}

	// SandboxGone reports that a sandbox died, or could not be made.
	SandboxGone struct {
		Generation uint64
		Reason     string
	}

	// SandboxDelayed reports that a sandbox cannot be started before there is room on
	// the disk.
	SandboxDelayed struct {
		Generation uint64
		Reason     string
	}

	// SandboxRelieved reports that processes were ended which needed too much, and
	// that no op says so.
	SandboxRelieved struct {
		Generation uint64
		Reason     string
	}

	// SandboxDown reports that a stopping sandbox has stopped.
	SandboxDown struct {
		Generation uint64
		// Kept says that its processes can be woken, and Lost why they cannot
		// although they should.
		Kept bool
		Lost string
	}

	// RecordRecovery reports that files of the workspace were lost, and put back.
	RecordRecovery struct{ dormouse.WorkspaceRecovery }

	// TakeSnapshot reports a snapshot of the workspace, whose layers are verified.
	TakeSnapshot struct {
		dormouse.Snapshot
		Keep dormouse.Retention
	}

	// SkipSnapshot reports that a snapshot was not taken.
	SkipSnapshot struct{ dormouse.SnapshotSkip }

	// Touch reports that a visitor who may change files is about to enter the sandbox.
	Touch struct{ dormouse.WorkspaceTouch }

	// Fire queues the prompt of a wake-up that is due, whose body the actor has read.
	Fire struct {
		ID      dormouse.WakeupID
		Content []dormouse.Block
	}

	// ChildUp reports that a child exists and has its first prompt.
	ChildUp struct{ Child dormouse.SessionID }

	// ChildDown reports that a child is terminated, or was never made.
	ChildDown struct {
		Child  dormouse.SessionID
		Reason string
	}

	// ParentTold reports that the parent has recorded the end of this session.
	ParentTold struct{}

	// Evict stops a sandbox that is not in use, because other sessions wait for its slot.
	Evict struct{}

	// Tick reports that time has passed.
	Tick struct {
		// Busy names what still runs in a sandbox that is not in use, empty if nothing
		// does.
		Busy string
		// Bounded says that it keeps the sandbox awake only for so long.
		Bounded bool
	}
)

// Work names the attempt that reports. What an attempt that is over reports is
// refused.
type Work struct {
	Turn    dormouse.TurnID
	Attempt int
}

func (Create) verb()          {}
func (Send) verb()            {}
func (Prompt) verb()          {}
func (Cancel) verb()          {}
func (Interrupt) verb()       {}
func (Answer) verb()          {}
func (OpenThread) verb()      {}
func (ArchiveThread) verb()   {}
func (Schedule) verb()        {}
func (Unschedule) verb()      {}
func (Spawn) verb()           {}
func (EndChild) verb()        {}
func (Describe) verb()        {}
func (Archive) verb()         {}
func (Delete) verb()          {}
func (Run) verb()             {}
func (EndExec) verb()         {}
func (StartExec) verb()       {}
func (Retry) verb()           {}
func (Continue) verb()        {}
func (Hibernate) verb()       {}
func (Wake) verb()            {}
func (Terminate) verb()       {}
func (Take) verb()            {}
func (Recover) verb()         {}
func (StartAttempt) verb()    {}
func (ReturnAttempt) verb()   {}
func (FailAttempt) verb()     {}
func (StartOp) verb()         {}
func (FinishOp) verb()        {}
func (ApplyAction) verb()     {}
func (LoseOp) verb()          {}
func (Block) verb()           {}
func (EndTurn) verb()         {}
func (Warm) verb()            {}
func (SandboxUp) verb()       {}
func (SandboxGone) verb()     {}
func (SandboxRelieved) verb() {}
func (RecordRecovery) verb()  {}
func (SandboxDelayed) verb()  {}
func (SandboxDown) verb()     {}
func (AskSnapshot) verb()     {}
func (TakeSnapshot) verb()    {}
func (SkipSnapshot) verb()    {}
func (ImportSnapshot) verb()  {}
func (ForgetSnapshots) verb() {}
func (Swap) verb()            {}
func (Touch) verb()           {}
func (Fire) verb()            {}
func (ChildUp) verb()         {}
func (ChildDown) verb()       {}
func (ParentTold) verb()      {}
func (Evict) verb()           {}
func (Tick) verb()            {}
