package law_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

const sid = dormouse.SessionID("sesn_0000000000000000000000000a")

var (
	thread = dormouse.PrimaryThread(sid)
	epoch0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// world is a session under test: the pure machine and nothing else.
type world struct {
	t     testing.TB
	state law.State
	at    dormouse.ThreadID // the thread that the helpers below speak of
	epoch uint64
	now   time.Time
	log   []dormouse.Event
	seen  map[dormouse.OpID]string
	given map[string]dormouse.Event // what ids were given to
}

func newWorld(t testing.TB, c dormouse.Created) *world {
	w := &world{t: t, at: thread, epoch: 1, now: epoch0, given: make(map[string]dormouse.Event)}
	if c.Session == "" {
		c.Session = sid
	}
	if c.Recovery == "" {
		c.Recovery = dormouse.RecoverAuto
	}
	c.Tenant, c.Owner = "default", dormouse.User("ada")
	c.Agent = dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: []dormouse.ToolConfig{{Name: "bash"}}}
	w.must(law.Create{Created: c})
	return w
}

// try decides and, if accepted, believes.
func (w *world) try(v law.Verb) ([]dormouse.Event, error) {
	w.now = w.now.Add(time.Second)
	d, err := law.Decide(w.state, law.Command{
		By: dormouse.User("ada"), Now: w.now, Epoch: w.epoch, Reached: w.state.Sandbox.Generation, Seen: w.seen, Given: w.given, Verb: v,
	})
	if err != nil {
		return nil, err
	}
	events := d.Events
	next, rows := law.Project(w.state, events)
	for _, g := range rows.ClientIDs {
		if first, again := w.given[g.ID]; again {
			w.t.Errorf("%T was taken at %d under id %s, which event %d has", v, g.Seq, g.ID, first.Seq)
		}
		w.given[g.ID] = events[g.Seq-events[0].Seq]
	}
	w.state = next
	w.log = append(w.log, events...)
	return events, nil
}

func (w *world) must(verbs ...law.Verb) {
	w.t.Helper()
	for _, v := range verbs {
		if _, err := w.try(v); err != nil {
			w.t.Fatalf("%T refused: %v", v, err)
		}
	}
}

func (w *world) prompt(id string) law.Prompt {
	content := []dormouse.Block{dormouse.Text("do " + id)}
	raw, _ := json.Marshal(content)
	return law.Prompt{Thread: w.at, ID: dormouse.PromptID(sid, id), Body: dormouse.DigestOf(raw), Content: content}
}

func (w *world) take(id string) law.Take {
	return law.Take{Thread: w.at, Prompt: dormouse.PromptID(sid, id), Content: []dormouse.Block{dormouse.Text("do " + id)}}
}

func (w *world) turn() *law.Turn { return w.state.Thread(w.at).Turn }

func (w *world) work() law.Work {
	if t := w.turn(); t != nil {
		return law.Work{Turn: t.ID, Attempt: t.Attempt}
	}
	return law.Work{Turn: "turn_none"}
}

// modelOp is the model call that the turn wants next.
func (w *world) modelOp() dormouse.Op {
	op := dormouse.Op{Kind: dormouse.OpModel, Args: dormouse.DigestOf(nil), Origin: dormouse.Origin{Thread: w.at, Turn: w.work().Turn, Call: 1, Block: -1}}
	if t := w.turn(); t != nil {
		op.Origin.Call = t.Calls + 1
		if t.Redo != nil {
			op.Origin.Call, op.Try, op.RetryOf = t.Calls, t.Redo.Try+1, t.Redo.Op
		}
	}
	return op.Named(sid)
}

// execOp is the exec that answers the first tool call that can run.
func (w *world) execOp(kind dormouse.OpKind) dormouse.Op {
	op := dormouse.Op{Kind: kind, Args: dormouse.DigestOf(nil), Generation: w.state.Sandbox.Generation, Origin: dormouse.Origin{Thread: w.at, Turn: w.work().Turn}}
	if t := w.turn(); t != nil {
		for _, u := range t.Uses {
			if u.Gate == dormouse.GateNone {
				op.Use, op.Origin.Call, op.Origin.Block = u.ID, u.Call, u.Block
				break
			}
		}
	}
	return op.Named(sid)
}

// ask starts a model call and gives it a reply that calls tools with these gates.
func (w *world) ask(gates ...dormouse.Gate) {
	w.t.Helper()
	op := w.modelOp()
	w.must(law.StartOp{Work: w.work(), Op: op}, w.reply(op, gates...))
}

func (w *world) reply(op dormouse.Op, gates ...dormouse.Gate) law.FinishOp {
	f := law.FinishOp{Work: w.work(), Op: op.ID, Outcome: dormouse.OutcomeOK, Usage: dormouse.ModelUsage{InputTokens: 10, OutputTokens: 5}}
	for i, g := range gates {
		typ := dormouse.AgentToolUse
		if g == dormouse.GateCustom {
			typ = dormouse.AgentCustomToolUse
		}
		id := dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(op.ID), string(rune('a'+i))))
		raw, _ := json.Marshal(dormouse.ToolUse{Name: "bash", Input: json.RawMessage(`{"command":"x"}`)})
		f.Events = append(f.Events, dormouse.Event{ID: id, Type: typ, Payload: raw})
		use := dormouse.Use{ID: id, Call: op.Origin.Call, Block: i, Gate: g}
		if g == dormouse.GateQuestion {
			use.Within = dormouse.QuestionWithin
		}
		f.Uses = append(f.Uses, use)
	}
	if len(gates) == 0 {
		raw, _ := json.Marshal(dormouse.Message{Content: []dormouse.Block{dormouse.Text("done")}})
		f.Events = []dormouse.Event{{ID: dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(op.ID), "m")), Type: dormouse.AgentMessage, Payload: raw}}
		f.Stop = dormouse.StopEndTurn
	}
	return f
}

// toolResult finishes an op in the sandbox.
func (w *world) toolResult(op dormouse.Op) law.FinishOp {
	raw, _ := json.Marshal(dormouse.ToolResult{Use: op.Use, Content: []dormouse.Block{dormouse.Text("out")}})
	return law.FinishOp{Work: w.work(), Op: op.ID, Outcome: dormouse.OutcomeOK, Events: []dormouse.Event{{
		ID: dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(op.ID), "r")), Type: dormouse.AgentToolResult, Payload: raw,
	}}}
}

// warm makes a session whose sandbox is up.
func warm(t testing.TB, c dormouse.Created) *world {
	c.Warm = true
	w := newWorld(t, c)
	w.must(law.SandboxUp{Generation: 1, Handle: json.RawMessage(`{"at":"here"}`)})
	return w
}

// running makes a session that has just started a turn.
func running(t testing.TB, c dormouse.Created) *world {
	w := warm(t, c)
	w.must(w.prompt("p1"), w.take("p1"))
	return w
}

// spawn makes a child; every name is another one.
func spawn(name string) law.Spawn {
	agent := dormouse.AgentConfig{Name: "agent", Model: "scripted", Tools: []dormouse.ToolConfig{{Name: "bash"}}}
	return law.Spawn{Rights: agent, Spawned: dormouse.Spawned{
		Child: dormouse.Created{Session: dormouse.ChildID(sid, name), Agent: agent, Recovery: dormouse.RecoverAuto},
	}}
}

// schedule has the session wake in a minute.
func (w *world) schedule(name string) law.Schedule {
	return law.Schedule{
		ID: dormouse.WakeupID(dormouse.WakeupPrefix + name), At: w.now.Add(time.Minute), Content: []dormouse.Block{dormouse.Text("again")},
	}
}

// use returns the first tool call that has no result.
func (w *world) use() dormouse.Use {
	if t := w.turn(); t != nil && len(t.Uses) > 0 {
		return t.Uses[0]
	}
	return dormouse.Use{ID: "sevt_none"}
}

// answer answers a tool call as its gate wants to be answered.
func answer(use dormouse.Use, allow bool) law.Answer {
	v := law.Answer{ID: "sevt_a" + use.ID, Use: use.ID}
	switch use.Gate {
	case dormouse.GateCustom, dormouse.GateQuestion:
		v.Content = []dormouse.Block{dormouse.Text("42")}
	case dormouse.GateNone, dormouse.GateAsk:
		v.Allow, v.Deny = allow, !allow
	}
	return v
}
