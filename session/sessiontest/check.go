// Package sessiontest checks what must be true of every session's log, whatever the
// session went through. Unit tests, random walks and crash tests use it.
package sessiontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/session/law"
)

// Check returns everything that is wrong with a whole log, read from seq 1 with
// the core's own facts included.
func Check(events []dormouse.Event) error {
	c := &checker{
		prompts: make(map[dormouse.EventID]string), ops: make(map[dormouse.OpID]string),
		uses: make(map[dormouse.EventID]int), spans: make(map[dormouse.EventID]int), lives: make(map[string]string),
	}
	for i, e := range events {
		if e.Seq != uint64(i)+1 {
			c.fail(e, "seq %d stands at place %d", e.Seq, i+1)
			break
		}
		c.see(e, events[:i])
		c.state = law.Apply(c.state, e)
	}
	c.settle(events)
	return errors.Join(c.errs...)
}

type checker struct {
	state   law.State
	prompts map[dormouse.EventID]string // queued, taken, done, cancelled
	ops     map[dormouse.OpID]string    // started, finished, unknown
	uses    map[dormouse.EventID]int    // results of each tool call
	spans   map[dormouse.EventID]int    // ends of each span
	lives   map[string]string           // questions, children, firings
	public  dormouse.Status             // as a client would fold it
	acting  bool                        // idle, and people are asked for something
	said    uint64                      // up to here it was said in another session
	errs    []error
}

func (c *checker) fail(e dormouse.Event, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("seq %d %s: %s", e.Seq, e.Type, fmt.Sprintf(format, args...)))
}

func (c *checker) see(e dormouse.Event, before []dormouse.Event) {
	switch e.Type { //nolint:exhaustive // the others promise nothing by themselves
	case dormouse.SessionCreated:
		if b := decode[dormouse.Created](e).Branch; b != nil {
			c.said = e.Seq + uint64(b.Transcript)
		}
	case dormouse.PromptQueued:
		c.move(e, e.ID, "", "queued")
	case dormouse.UserMessage:
		if e.Seq > c.said { // of a branch, where it was said before
			c.move(e, e.ID, "queued", "taken")
		}
	case dormouse.TurnStarted:
		if p := decode[dormouse.TurnFact](e); p.RetryOf != "" {
			for _, id := range p.Prompts {
				c.move(e, id, "done", "taken")
			}
		}
	case dormouse.PromptCompleted:
		for _, id := range decode[dormouse.Prompts](e).Prompts {
			c.move(e, id, "taken", "done")
		}
	case dormouse.PromptCancelled:
		for _, id := range decode[dormouse.Prompts](e).Prompts {
			c.move(e, id, "queued", "cancelled")
		}
	case dormouse.TurnEnded:
		if n := len(before); n == 0 || before[n-1].Type != dormouse.PromptCompleted {
			c.fail(e, "turn ended apart from its prompts")
		}
	case dormouse.AttemptStarted:
		if p := decode[dormouse.Attempt](e); p.Number > law.MaxAttempt {
			c.fail(e, "attempt %d was started", p.Number)
		}
	case dormouse.OpStarted:
		c.opStarted(e)
	case dormouse.OpFinished, dormouse.OpUnknown:
		c.opEnded(e)
	case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
		if _, again := c.uses[e.ID]; again {
			c.fail(e, "tool call %s is there twice", e.ID)
		}
		c.uses[e.ID] = 0
	case dormouse.AgentToolResult:
		c.result(e, decode[dormouse.ToolResult](e).Use)
	case dormouse.UserCustomToolResult:
		c.result(e, decode[dormouse.CustomToolResult](e).Use)
	case dormouse.QuestionAsked:
		c.step(e, string(decode[dormouse.Question](e).Use), "", "asked")
	case dormouse.QuestionAnswered, dormouse.QuestionExpired:
		c.step(e, string(decode[dormouse.Question](e).Use), "asked", "over")
	case dormouse.ChildSpawned:
		c.step(e, string(decode[dormouse.Spawned](e).Child.Session), "", "spawned")
	case dormouse.ChildStarted:
		c.step(e, string(decode[dormouse.ChildFact](e).Child), "spawned", "started")
	case dormouse.ChildEnded:
		c.ended(e, decode[dormouse.ChildFact](e).Child)
	case dormouse.WakeupFired:
		c.fired(e, decode[dormouse.WakeupFact](e))
	case dormouse.SpanModelRequestStart:
		c.spans[e.ID] = 0
	case dormouse.SpanModelRequestEnd:
		p := decode[dormouse.SpanEnd](e)
		if n, ok := c.spans[p.Start]; !ok || n > 0 {
			c.fail(e, "span %s is not open", p.Start)
		}
		c.spans[p.Start]++
	case dormouse.SessionStatusRunning, dormouse.SessionStatusIdle, dormouse.SessionStatusRescheduled, dormouse.SessionStatusTerminated:
		c.status(e, before)
	}
}

// step checks that something goes through its life in order, and once.
func (c *checker) step(e dormouse.Event, id, from, to string) {
	if c.lives[id] != from {
		c.fail(e, "%s is %q, expected %q before %q", id, c.lives[id], from, to)
	}
	c.lives[id] = to
}

// ended checks that a child ends once. One that ended may be spawned again only
// under another id.
func (c *checker) ended(e dormouse.Event, child dormouse.SessionID) {
	if at := c.lives[string(child)]; at != "spawned" && at != "started" {
		c.fail(e, "child %s is %q and ends", child, at)
	}
	c.lives[string(child)] = "ended"
}

// fired checks that a wake-up fires when it is due, once for each time.
func (c *checker) fired(e dormouse.Event, f dormouse.WakeupFact) {
	if f.Due.After(e.Time) {
		c.fail(e, "wake-up %s fired before %s", f.ID, f.Due)
	}
	if !f.Next.IsZero() && !f.Next.After(e.Time) {
		c.fail(e, "wake-up %s is due again at once", f.ID)
	}
	c.step(e, string(f.ID)+f.Due.String(), "", "fired")
}

func (c *checker) move(e dormouse.Event, id dormouse.EventID, from, to string) {
	if c.prompts[id] != from {
		c.fail(e, "prompt %s is %q, expected %q before %q", id, c.prompts[id], from, to)
	}
	c.prompts[id] = to
}

func (c *checker) opStarted(e dormouse.Event) {
	op := decode[dormouse.OpFact](e).Op
	if c.ops[op.ID] != "" {
		c.fail(e, "op %s was started before", op.ID)
	}
	if (op.Try > 0) != (op.RetryOf != "") || op.RetryOf != "" && c.ops[op.RetryOf] == "" {
		c.fail(e, "op %s is try %d of %q", op.ID, op.Try, op.RetryOf)
	}
	c.ops[op.ID] = "started"
}

func (c *checker) opEnded(e dormouse.Event) {
	id := decode[dormouse.OpEnd](e).Op
	if c.ops[id] != "started" {
		c.fail(e, "op %s is %q", id, c.ops[id])
	}
	c.ops[id] = string(e.Type)
}

func (c *checker) result(e dormouse.Event, use dormouse.EventID) {
	n, ok := c.uses[use]
	if !ok || n > 0 {
		c.fail(e, "tool call %s has %d results already", use, n)
	}
	c.uses[use]++
}

// status folds the public events as a client would.
func (c *checker) status(e dormouse.Event, before []dormouse.Event) {
	switch e.Type { //nolint:exhaustive // only statuses come here
	case dormouse.SessionStatusRunning:
		if c.public == dormouse.StatusRunning || c.public == dormouse.StatusRescheduling || c.public == dormouse.StatusTerminated {
			c.fail(e, "running while %s", c.public)
		}
		c.public, c.acting = dormouse.StatusRunning, false
	case dormouse.SessionStatusRescheduled:
		if c.public != dormouse.StatusRunning && c.public != dormouse.StatusRescheduling {
			c.fail(e, "rescheduled while %q", c.public)
		}
		c.public = dormouse.StatusRescheduling
	case dormouse.SessionStatusIdle:
		if (c.public == "" || c.public == dormouse.StatusIdle) && !c.acting {
			c.fail(e, "idle without running")
		}
		if n := len(before); n == 0 || before[n-1].Type != dormouse.SessionUsage {
			c.fail(e, "idle without usage right before it")
		}
		c.public = dormouse.StatusIdle
		c.acting = decode[dormouse.Idle](e).StopReason.Type == dormouse.StopRequiresAction
	case dormouse.SessionStatusTerminated:
		if c.public == dormouse.StatusRunning || c.public == dormouse.StatusTerminated {
			c.fail(e, "terminated while %s", c.public)
		}
		c.public = dormouse.StatusTerminated
	}
}

// settle checks what must hold wherever a log ends.
func (c *checker) settle(events []dormouse.Event) {
	var last dormouse.Event
	if len(events) > 0 {
		last = events[len(events)-1]
	}
	got := c.public
	if got == "" {
		got = dormouse.StatusIdle
	}
	want := law.StatusOf(c.state)
	if got == dormouse.StatusRescheduling || want == dormouse.StatusRescheduling {
		got, want = dormouse.StatusRunning, dormouse.StatusRunning // between attempts both words are true
	}
	if want == dormouse.StatusRunning && !slices.ContainsFunc(c.state.Threads, works) {
		want = dormouse.StatusIdle // a prompt waits for its turn, and no turn has begun
	}
	if got != want {
		c.fail(last, "clients see %s, the facts say %s", got, want)
	}
	c.settlePrompts(last)
	for use, n := range c.uses {
		if n == 0 && !c.pending(use) {
			c.fail(last, "tool call %s has no result and no turn that will bring one", use)
		}
	}
	for span, n := range c.spans {
		if n == 0 && !slices.ContainsFunc(c.state.Ops, func(o law.OpenOp) bool { return o.Span == span }) {
			c.fail(last, "span %s was never closed", span)
		}
	}
	open := 0
	for _, state := range c.ops {
		if state == "started" {
			open++
		}
	}
	if open != len(c.state.Ops) {
		c.fail(last, "%d ops are open in the log, %d in the state", open, len(c.state.Ops))
	}
	for _, op := range c.state.Ops {
		lives := c.state.Sandbox.Phase != law.SandboxCold && op.Generation == c.state.Sandbox.Generation
		if op.Kind.InSandbox() && !c.owned(op.Origin.Turn) && !lives {
			c.fail(last, "op %s is open, and neither a turn nor a sandbox is left that could end it", op.ID)
		}
	}
	for _, t := range c.state.Threads {
		c.settleTranscript(last, t.ID, events)
	}
}

func works(t law.Thread) bool { return t.Turn != nil && t.Turn.Blocked == "" }

// settleTranscript checks that what a thread's model would be sent next is
// valid.
func (c *checker) settleTranscript(last dormouse.Event, thread dormouse.ThreadID, events []dormouse.Event) {
	var own []dormouse.Event
	for _, e := range events {
		if e.Thread == thread {
			own = append(own, e)
		}
	}
	m := agent.Transcript(agent.ReadAll(own))
	if len(m) == 0 {
		return
	}
	if m[len(m)-1].Role == model.RoleAssistant {
		m = append(m, model.Message{Role: model.RoleUser, Content: []model.Part{{Type: model.PartText, Text: "next"}}})
	}
	if err := model.ValidateTranscript(m); err != nil {
		c.fail(last, "transcript of %s is not valid: %v", thread, err)
	}
}

func (c *checker) settlePrompts(last dormouse.Event) {
	for id, state := range c.prompts {
		in := ""
		for _, t := range c.state.Threads {
			if slices.ContainsFunc(t.Queue, func(q dormouse.PromptRecord) bool { return q.ID == id }) {
				in = "queued"
			}
			if t.Turn != nil && slices.ContainsFunc(t.Turn.Prompts, func(q dormouse.PromptRecord) bool { return q.ID == id }) {
				in = "taken"
			}
		}
		if (state == "queued" || state == "taken") && in != state || (state == "done" || state == "cancelled") && in != "" {
			c.fail(last, "prompt %s is %q in the log and %q in the state", id, state, in)
		}
	}
}

// owned reports whether a turn is still there.
func (c *checker) owned(turn dormouse.TurnID) bool {
	return slices.ContainsFunc(c.state.Threads, func(t law.Thread) bool { return t.Turn != nil && t.Turn.ID == turn })
}

// pending reports whether the result of a tool call is still missing from its turn.
func (c *checker) pending(use dormouse.EventID) bool {
	for _, t := range c.state.Threads {
		if t.Turn != nil {
			if _, ok := t.Turn.Use(use); ok {
				return true
			}
		}
	}
	return false
}

func decode[T any](e dormouse.Event) T {
	var p T
	_ = json.Unmarshal(e.Payload, &p) // an unreadable payload fails the checks that need it
	return p
}
