package offline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/modeltest"
	"github.com/dormouse-run/dormouse/model/offline"
)

func request(prompt string) model.Request {
	return model.Request{Model: "offline", Messages: modeltest.User(prompt), Tools: []model.Tool{modeltest.Bash()}, MaxTokens: 100}
}

func reply(t *testing.T, r model.Request) model.Reply {
	t.Helper()
	got, err := offline.New().Reply(t.Context(), r, func(model.Delta) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func commands(r model.Reply) []string {
	var out []string
	for _, p := range r.Content {
		if p.Type == model.PartToolUse {
			out = append(out, p.Name+string(p.Input))
		}
	}
	return out
}

func TestOfflineKeepsThePromisesOfAModel(t *testing.T) {
	modeltest.Run(t, func(*testing.T) modeltest.Subject {
		return modeltest.Subject{Model: offline.New(), Text: request("hello"), Tools: request("$ ls")}
	})
}

func TestLinesThatBeginWithADollarAreRun(t *testing.T) {
	got := reply(t, request("please\n$ ls -la\r\nand then $ not this\n$git status\n$\n"))
	want := []string{`bash{"command":"ls -la"}`, `bash{"command":"git status"}`}
	if diff := cmp.Diff(want, commands(got)); diff != "" {
		t.Error(diff)
	}
	if got.StopReason != model.StopToolUse {
		t.Errorf("stop reason is %q", got.StopReason)
	}
}

func TestOutcomesAreReportedOnce(t *testing.T) {
	r := request("$ true\n$ false\n$ sleep")
	r.Messages = modeltest.Answered(r.Messages, reply(t, r), "[x]\n[exit status 3]\n")
	results := r.Messages[2].Content
	results[1].IsError = true
	results[2].IsError = true
	results[2].Result[0].Text = "no remark"
	got := reply(t, r)
	if want := "$ true: ok\n$ false: exit status 3\n$ sleep: failed"; got.Content[0].Text != want {
		t.Errorf("got %q, want %q", got.Content[0].Text, want)
	}
	if got.StopReason != model.StopEndTurn {
		t.Errorf("stop reason is %q", got.StopReason)
	}
}

func TestInterruptedReportIsGivenAgainAndRunsNothing(t *testing.T) {
	r := request("$ true")
	r.Messages = modeltest.Answered(r.Messages, reply(t, r), "ok")
	r.Messages = append(r.Messages,
		model.Message{Role: model.RoleAssistant, Content: []model.Part{{Type: model.PartText, Text: "$ tr"}}},
		model.Message{Role: model.RoleUser, Content: []model.Part{{Type: model.PartText, Text: "[dormouse: the reply was interrupted]"}}})
	if got := commands(reply(t, r)); got != nil {
		t.Errorf("it ran %q", got)
	}
}

func TestEachTurnRunsOnlyItsOwnCommands(t *testing.T) {
	r := request("$ ls")
	first := reply(t, r)
	r.Messages = modeltest.Answered(r.Messages, first, "ok")
	r.Messages = append(r.Messages,
		model.Message{Role: model.RoleAssistant, Content: reply(t, r).Content},
		modeltest.User("$ ls")[0])
	second := reply(t, r)
	if diff := cmp.Diff(commands(first), commands(second)); diff != "" {
		t.Error(diff)
	}
	if first.Content[0].ID == second.Content[0].ID {
		t.Error("two tool calls share an id")
	}
}

func TestPromptWithoutCommandsExplainsHowToGetAModel(t *testing.T) {
	got := reply(t, request("hello"))
	for _, want := range []string{"--model", "dormouse help models", "$ ls"} {
		if !strings.Contains(got.Content[0].Text, want) {
			t.Errorf("the answer does not mention %q: %s", want, got.Content[0].Text)
		}
	}
}

func TestCommandsAreNotRunWithoutTheTool(t *testing.T) {
	r := request("$ ls")
	r.Tools = nil
	if got := commands(reply(t, r)); got != nil {
		t.Errorf("it asked for %q", got)
	}
}

func TestTooManyCommandsAreLeftOutVisibly(t *testing.T) {
	var b strings.Builder
	for i := range 103 {
		fmt.Fprintf(&b, "$ echo %d\n", i)
	}
	got := reply(t, request(b.String()))
	if n := len(commands(got)); n != 100 {
		t.Errorf("%d commands are run", n)
	}
	if !strings.Contains(got.Content[0].Text, "3 are left out") {
		t.Errorf("nothing is said about it: %q", got.Content[0].Text)
	}
}
