package law

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
)

// State is the fold of a session's log: its facts and nothing derived from
// them. Bodies stay in the log. It is a value: Apply never changes what it was
// given.
type State struct {
	Seq uint64 `json:"seq"`
	// Needs is the least version of the log that a program must know to have folded it.
	Needs   int                `json:"needs,omitempty"`
	Session dormouse.SessionID `json:"session,omitempty"`
	Tenant  string             `json:"tenant,omitempty"`
	Owner   dormouse.Actor     `json:"owner,omitempty"`
	Parent  dormouse.SessionID `json:"parent,omitempty"`
	Depth   int                `json:"depth,omitempty"`
	Agent   string             `json:"agent,omitempty"`
	// Config is the event that says what the next turn runs with: agent.configured, or
	// session.created if it is 0.
	Config uint64 `json:"config,omitempty"`
	// AgentID, AgentVersion and EnvironmentID say what of the catalog it was made of, if
	// it was.
	AgentID       string `json:"agent_id,omitempty"`
	AgentVersion  int    `json:"agent_version,omitempty"`
	EnvironmentID string `json:"environment_id,omitempty"`

	Title string `json:"title,omitempty"`
	// Titled says that a client gave it its title.
	Titled   bool              `json:"titled,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	Recovery     dormouse.Recovery `json:"recovery,omitempty"`
	FlushOnError bool              `json:"flush_on_error,omitempty"`
	SleepAfter   time.Duration     `json:"sleep_after,omitempty"`
	// Environment is what sandboxes are made of, and Image the digest that its image
	// had when the first was.
	Environment dormouse.Environment `json:"environment,omitzero"`
	Image       string               `json:"image,omitempty"`
	Created     time.Time            `json:"created,omitzero"`
	Updated     time.Time            `json:"updated,omitzero"`

	Terminated *Ending `json:"terminated,omitempty"`
	// ParentUntold says that its parent may not have recorded yet that it ended.
	ParentUntold bool      `json:"untold,omitempty"`
	Archived     time.Time `json:"archived,omitzero"`
	Deleted      bool      `json:"deleted,omitempty"`
	Threads      []Thread  `json:"threads,omitempty"`
	Ops          []OpenOp  `json:"ops,omitempty"`
	Sandbox      Sandbox   `json:"sandbox,omitzero"`
	Workspace    Workspace `json:"workspace,omitzero"`
	// Shell is the name of the first thread's shell, if that is not the thread's own.
	Shell       dormouse.ThreadID      `json:"shell,omitempty"`
	Snapshots   []Snapshot             `json:"points,omitempty"` // the oldest first
	Asked       []dormouse.SnapshotAsk `json:"asked,omitempty"`  // snapshots that a caller waits for
	Truncations []Truncation           `json:"voided,omitempty"` // what is no part of the conversation any more
	Wakeups     []Wakeup               `json:"wakeups,omitempty"`
	Children    []Child                `json:"children,omitempty"`  // those that have not ended
	Offspring   int                    `json:"offspring,omitempty"` // how many more sessions there may be below this one
	Execs       []Exec                 `json:"execs,omitempty"`     // those that are not answered
	IdleSince   time.Time              `json:"idle_since,omitzero"`

	Usage      dormouse.ModelUsage `json:"usage,omitzero"`
	CostMicros int64               `json:"cost_micros,omitempty"`
	Messages   int64               `json:"messages,omitempty"`
	ToolCalls  int64               `json:"tool_calls,omitempty"`
	Active     time.Duration       `json:"active,omitempty"`
	// ActiveSince is when a turn last began to run while none did.
	ActiveSince time.Time `json:"active_since,omitzero"`
}

// Wakeup is a scheduled wake-up. Its prompt is in the log, at Seq.
type Wakeup struct {
	ID     dormouse.WakeupID `json:"id"`
	Thread dormouse.ThreadID `json:"thread"`
	Cron   string            `json:"cron,omitempty"`
	At     time.Time         `json:"at"`
	Seq    uint64            `json:"seq"`
}

// Child is a session that this one spawned. What it is made of is in the log,
// at Seq.
type Child struct {
	ID      dormouse.SessionID `json:"id"`
	Seq     uint64             `json:"seq"`
	Started bool               `json:"started,omitempty"`
	Ending  bool               `json:"ending,omitempty"`
	// Offspring is how many sessions it was given to have below it.
	Offspring int `json:"offspring,omitempty"`
}

// Ending is how a session ended.
type Ending struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Thread is one agent of a session: what it was asked and what it works on.
type Thread struct {
	ID       dormouse.ThreadID       `json:"id"`
	Created  time.Time               `json:"created,omitzero"`
	Archived time.Time               `json:"archived,omitzero"`
	Queue    []dormouse.PromptRecord `json:"queue,omitempty"`
	Turn     *Turn                   `json:"turn,omitempty"`
	// Attention is set while a person should look at the thread.
	Attention *Attention `json:"attention,omitempty"`
}

// Turn is the work on one prompt, tried in attempts.
type Turn struct {
	ID      dormouse.TurnID         `json:"id"`
	Prompts []dormouse.PromptRecord `json:"prompts"`
	// Attempt is the number of the attempt that runs, or that is next. The first
	// try is attempt 0; every reschedule raises it; attempt MaxAttempt+1 never starts.
	Attempt int `json:"attempt"`
	// Epoch is the lease under which the attempt runs; 0 between attempts and
	// while blocked.
	Epoch uint64 `json:"epoch,omitempty"`
	// Blocked says what a blocked turn waits for: people or recovery.
	Blocked string `json:"blocked,omitempty"`
	// Until is when the next attempt may start, Since when the last one ended.
	Until time.Time `json:"until,omitzero"`
	Since time.Time `json:"since,omitzero"`
	// Calls counts the model calls asked for so far.
	Calls int `json:"calls,omitempty"`
	// Redo is the model call that has to be made again, if one was cut short.
	Redo *Redo `json:"redo,omitempty"`
	// Config is what it runs with, as State.Config.
	Config uint64 `json:"config,omitempty"`
	// Stop is set once the agent has said its last word, and says why it was.
	Stop string `json:"stop,omitempty"`
	// Uses are the tool calls that have no result yet.
	Uses []dormouse.Use `json:"uses,omitempty"`
}

// Redo names a model call that ended without a reply. The next call of the turn
// is its retry and says so.
type Redo struct {
	Op  dormouse.OpID `json:"op"`
	Try int           `json:"try"`
}

// OpenOp is an op that was started and has no end yet.
type OpenOp struct {
	dormouse.Op
	Span    dormouse.EventID `json:"span,omitempty"`
	Started time.Time        `json:"started"`
	Expires time.Time        `json:"expires,omitzero"`
}

// SandboxPhase is where the sandbox stands.
type SandboxPhase string

// The phases of a sandbox. The zero value is cold.
const (
	SandboxCold     SandboxPhase = ""
	SandboxWarming  SandboxPhase = "warming"
	SandboxActive   SandboxPhase = "active"
	SandboxStopping SandboxPhase = "stopping"
)

// Sandbox is what is known of the session's sandbox.
type Sandbox struct {
	// LastBusy is when processes in it were last found busy although it was not in use.
	LastBusy time.Time    `json:"stirred,omitzero"`
	Phase    SandboxPhase `json:"phase,omitempty"`
	// Generation counts every sandbox the session has had.
	Generation uint64          `json:"generation,omitempty"`
	How        string          `json:"how,omitempty"`
	Handle     json.RawMessage `json:"handle,omitempty"`
	// Saved says that the files of this generation are durable elsewhere, so that
	// it may be stopped.
	Saved bool `json:"saved,omitempty"`
	// IdleTimeout is how long its server lets it be idle, whatever the session says.
	IdleTimeout time.Duration `json:"idle_timeout,omitempty"`
}

// Attention is why a session shows error, and what retry would take up.
type Attention struct {
	Reason  string                  `json:"reason"`
	Turn    dormouse.TurnID         `json:"turn,omitempty"`
	Prompts []dormouse.PromptRecord `json:"prompts,omitempty"`
}

// Clone copies what Apply may change. A queue can be long and most events do not change
// it, so an event that does replaces it instead.
func (s State) Clone() State {
	s.Threads = slices.Clone(s.Threads)
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Turn != nil {
			turn := *t.Turn
			turn.Uses = slices.Clone(turn.Uses)
			t.Turn = &turn
		}
	}
	s.Ops = slices.Clone(s.Ops)
	s.Wakeups = slices.Clone(s.Wakeups)
	s.Children = slices.Clone(s.Children)
	s.Execs = slices.Clone(s.Execs)
	s.Snapshots, s.Asked, s.Truncations = slices.Clone(s.Snapshots), slices.Clone(s.Asked), slices.Clone(s.Truncations)
	return s
}

// Thread returns the thread called id, or nil.
func (s State) Thread(id dormouse.ThreadID) *Thread {
	for i := range s.Threads {
		if s.Threads[i].ID == id {
			return &s.Threads[i]
		}
	}
	return nil
}

// Op returns the open op called id.
func (s State) Op(id dormouse.OpID) (OpenOp, bool) {
	i := slices.IndexFunc(s.Ops, func(o OpenOp) bool { return o.ID == id })
	if i < 0 {
		return OpenOp{}, false
	}
	return s.Ops[i], true
}

// OpFor returns the open op that answers a tool call.
func (s State) OpFor(use dormouse.EventID) (OpenOp, bool) {
	i := slices.IndexFunc(s.Ops, func(o OpenOp) bool { return o.Use == use })
	if i < 0 {
		return OpenOp{}, false
	}
	return s.Ops[i], true
}

// TurnOf returns the thread whose turn is called id, or nil.
func (s State) TurnOf(id dormouse.TurnID) *Thread {
	for i := range s.Threads {
		if t := s.Threads[i].Turn; t != nil && t.ID == id {
			return &s.Threads[i]
		}
	}
	return nil
}

// Use returns the tool call of this turn that has no result yet.
func (t *Turn) Use(id dormouse.EventID) (dormouse.Use, bool) {
	i := slices.IndexFunc(t.Uses, func(u dormouse.Use) bool { return u.ID == id })
	if i < 0 {
		return dormouse.Use{}, false
	}
	return t.Uses[i], true
}

// Works reports whether any turn is at work, or will be without input from a client.
func (s State) Works() bool {
	return slices.ContainsFunc(s.Threads, func(t Thread) bool { return t.Turn != nil && t.Turn.Blocked == "" })
}

// promptReady reports whether a prompt waits for nothing but its turn.
func (s State) promptReady() bool {
	return s.Terminated == nil && slices.ContainsFunc(s.Threads, func(t Thread) bool { return t.Turn == nil && len(t.Queue) > 0 })
}

// engaged reports whether the session works or is about to. What was requested a moment
// ago must not be lost because nothing runs yet.
func (s State) engaged() bool { return s.Works() || s.promptReady() }

// Attention returns why the session shows error, or nil.
func (s State) Attention() *Attention {
	for _, t := range s.Threads {
		if t.Attention != nil {
			return t.Attention
		}
	}
	return nil
}

// wakeup returns the place of a wake-up, or -1.
func (s State) wakeup(id dormouse.WakeupID) int {
	return slices.IndexFunc(s.Wakeups, func(w Wakeup) bool { return w.ID == id })
}

// Child returns the place of a child that has not ended, or -1.
func (s State) Child(id dormouse.SessionID) int {
	return slices.IndexFunc(s.Children, func(c Child) bool { return c.ID == id })
}

// gated lists the tool calls that wait for people.
func (t *Turn) gated() []dormouse.EventID {
	var ids []dormouse.EventID
	for _, u := range t.Uses {
		if u.Gate != dormouse.GateNone {
			ids = append(ids, u.ID)
		}
	}
	return ids
}
