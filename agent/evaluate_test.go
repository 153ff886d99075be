package agent_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/model"
)

// judged is the journal of a turn whose first call is about to be made.
type judged struct {
	agent.Journal
	tools  []dormouse.ToolConfig
	finish agent.Finish
}

func (j *judged) View(context.Context) (agent.View, error) {
	return agent.View{Agent: dormouse.AgentConfig{
		Model: "any", Tools: j.tools, CustomTools: []dormouse.CustomTool{{Name: "custom"}},
	}}, nil
}

func (j *judged) History(context.Context, uint64) ([]agent.Entry, error) { return nil, nil }

func (j *judged) Start(context.Context, dormouse.Op) error { return nil }

func (j *judged) Finish(_ context.Context, f agent.Finish, _ *dormouse.Op) (bool, error) {
	j.finish = f
	return false, errSeen
}

// calls is a model that makes one tool call.
type calls struct{ name, input string }

func (c calls) Model(string) (model.Model, error) { return c, nil }

func (c calls) Reply(context.Context, model.Request, func(model.Delta) error) (model.Reply, error) {
	return model.Reply{Content: []model.Part{{Type: model.PartToolUse, ID: "t", Name: c.name, Input: json.RawMessage(c.input)}}}, nil
}

func TestAToolCallIsAllowedOrAskedForByItsPolicy(t *testing.T) {
	const asked = `"evaluated_permission":"ask","evaluation":`
	const allowed = `"evaluated_permission":"allow","evaluation":`
	const indeterminate = asked + `{"type":"auto","evaluated_permission":{"type":"ask","reason_code":"indeterminate"}}`
	const harmless = allowed + `{"type":"auto","evaluated_permission":{"type":"allow"}}`
	for _, test := range []struct {
		name, input string
		policy      dormouse.Permission
		want        string
		gate        dormouse.Gate
	}{
		{"bash", `{"command":"ls"}`, "", allowed + `{"type":"always_allow"}`, dormouse.GateNone},
		{"bash", `{"command":"ls"}`, dormouse.PermissionAllow, allowed + `{"type":"always_allow"}`, dormouse.GateNone},
		{"read", `{"file_path":"f"}`, dormouse.PermissionAsk, asked + `{"type":"always_ask"}`, dormouse.GateAsk},
		{"read", `{"file_path":"f"}`, dormouse.PermissionAuto, harmless, dormouse.GateNone},
		{"glob", `{"pattern":"*"}`, dormouse.PermissionAuto, harmless, dormouse.GateNone},
		{"grep", `{"pattern":"a"}`, dormouse.PermissionAuto, harmless, dormouse.GateNone},
		{"bash", `{"command":"ls"}`, dormouse.PermissionAuto, indeterminate, dormouse.GateAsk},
		{"task", `{"command":"ls"}`, dormouse.PermissionAuto, indeterminate, dormouse.GateAsk},
		{"write", `{"file_path":"f","content":""}`, dormouse.PermissionAuto, indeterminate, dormouse.GateAsk},
		{"edit", `{"file_path":"f","old_string":"a","new_string":"b"}`, dormouse.PermissionAuto, indeterminate, dormouse.GateAsk},
		{"wakeup_list", `{}`, dormouse.PermissionAuto, indeterminate, dormouse.GateAsk},
		{"question_ask", `{"question":"?"}`, dormouse.PermissionAsk, allowed + `{"type":"always_allow"}`, dormouse.GateQuestion},
		{"custom", `{}`, "", "", dormouse.GateCustom},
	} {
		j := &judged{tools: []dormouse.ToolConfig{{Name: test.name, Permission: test.policy}}}
		_ = agent.New(calls{test.name, test.input}, tool.Builtin()).Run(t.Context(), j)
		if len(j.finish.Uses) != 1 || j.finish.Uses[0].Gate != test.gate {
			t.Fatalf("%s %s: it waits for %+v", test.name, test.policy, j.finish.Uses)
		}
		want := `{"name":"` + test.name + `","input":` + test.input
		if test.want != "" {
			want += "," + test.want
		}
		if got := string(j.finish.Events[0].Payload); got != want+"}" {
			t.Errorf("%s %s: %s, want %s", test.name, test.policy, got, want)
		}
	}
}
