package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// errSeen ends a turn that has seen enough.
var errSeen = errors.New("seen enough")

// gone is the journal of a turn whose op was sent to sandbox 1. While the turn
// waits for a sandbox, that one is stopped, the op is lost and sandbox 2 comes.
type gone struct {
	agent.Journal
	kind  dormouse.OpKind
	input string
	looks int
	box   *recorder
}

func (g *gone) View(context.Context) (agent.View, error) {
	g.looks++
	if g.looks > 1 {
		return agent.View{}, errSeen
	}
	tools := []dormouse.ToolConfig{{Name: "bash"}, {Name: "task"}, {Name: "read"}, {Name: "write"}}
	return agent.View{
		Agent: dormouse.AgentConfig{Model: "none", Tools: tools},
		Uses:  []dormouse.Use{{ID: "sevt_use"}},
		Ops:   []dormouse.Op{{ID: "op_first", Kind: g.kind, Generation: 1, Use: "sevt_use"}},
	}, nil
}

func (g *gone) History(context.Context, uint64) ([]agent.Entry, error) {
	names := map[dormouse.OpKind]string{ //nolint:exhaustive // only these have a tool
		dormouse.OpExec: "bash", dormouse.OpTask: "task", dormouse.OpRead: "read", dormouse.OpWrite: "write"}
	use, err := json.Marshal(dormouse.ToolUse{Name: names[g.kind], Input: json.RawMessage(g.input)})
	return []agent.Entry{agent.Read(dormouse.Event{Seq: 1, ID: "sevt_use", Type: dormouse.AgentToolUse, Payload: use})}, err
}

func (g *gone) Sandbox(context.Context) (sandbox.Sandbox, uint64, error) { return g.box, 2, nil }

// recorder is a sandbox that only notes what it is asked for.
type recorder struct {
	sandbox.Sandbox
	started []dormouse.OpID
}

func (r *recorder) Run(_ context.Context, c runner.Call, _ func(), _ func([]byte)) (runner.Result, error) {
	r.started = append(r.started, c.Op)
	return runner.Result{}, errSeen
}

type noModels struct{}

func (noModels) Model(string) (model.Model, error) { return nil, errSeen }

func TestAnOpOfASandboxThatIsGoneIsNotStartedInTheNext(t *testing.T) {
	for _, c := range []struct {
		kind  dormouse.OpKind
		input string
		again bool
	}{
		{dormouse.OpExec, `{"command":"true"}`, false},
		{dormouse.OpTask, `{"command":"true"}`, false},
		{dormouse.OpWrite, `{"file_path":"f","content":"c"}`, false},
		{dormouse.OpRead, `{"file_path":"f"}`, true},
	} {
		g := &gone{kind: c.kind, input: c.input, box: new(recorder)}
		if err := agent.New(noModels{}, tool.Builtin()).Run(t.Context(), g); !errors.Is(err, errSeen) {
			t.Errorf("%s: run = %v", c.kind, err)
		}
		if again := len(g.box.started) > 0; again != c.again {
			t.Errorf("%s was started again: %v, want %v", c.kind, again, c.again)
		}
	}
}

// old is the journal of a turn that wants what no tool understands any more.
type old struct {
	gone
	running bool
	applied tool.Action
}

func (o *old) View(ctx context.Context) (agent.View, error) {
	v, err := o.gone.View(ctx)
	if !o.running {
		v.Ops = nil
	}
	return v, err
}

func (o *old) Apply(_ context.Context, _ dormouse.Use, w tool.Action) error {
	o.applied = w
	return nil
}

func TestACallThatIsNotUnderstoodAnyMoreEndsNoSession(t *testing.T) {
	run := func(running bool) (*old, error) {
		o := &old{gone: gone{kind: dormouse.OpExec, input: `{"command":"true","run_in_background":true}`, box: new(recorder)}, running: running}
		return o, agent.New(noModels{}, tool.Builtin()).Run(t.Context(), o)
	}
	if o, err := run(false); !errors.Is(err, errSeen) || o.applied == nil {
		t.Errorf("one that does not run: %v, told %v", err, o.applied)
	}
	_, err := run(true)
	if f, ok := errors.AsType[*agent.Failure](err); !ok || !f.Final {
		t.Errorf("one that runs: %v", err)
	}
}
