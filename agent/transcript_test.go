package agent_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/model"
)

// log builds events by hand.
type log struct{ events []dormouse.Event }

func (l *log) add(id string, t dormouse.EventType, p any) *log {
	l.events = append(l.events, dormouse.Event{
		Seq: uint64(len(l.events) + 1), ID: dormouse.EventID(id), Type: t, Payload: dormouse.Encode(p),
	})
	return l
}

func (l *log) user(text string) *log {
	return l.add("u", dormouse.UserMessage, dormouse.Message{Content: []dormouse.Block{dormouse.Text(text)}})
}

func (l *log) call() *log { return l.add("s", dormouse.SpanModelRequestStart, struct{}{}) }

func (l *log) says(id, text string) *log {
	return l.add(id, dormouse.AgentMessage, dormouse.Message{Content: []dormouse.Block{dormouse.Text(text)}})
}

func (l *log) uses(id string) *log {
	return l.add(id, dormouse.AgentToolUse, dormouse.ToolUse{Name: "bash", Input: json.RawMessage(`{}`)})
}

func (l *log) result(use, text string) *log {
	return l.add("r"+use, dormouse.AgentToolResult, dormouse.ToolResult{
		Use: dormouse.EventID(use), Content: []dormouse.Block{dormouse.Text(text)},
	})
}

// sketch writes a transcript as one line per message.
func sketch(messages []model.Message) []string {
	var out []string
	for _, m := range messages {
		var parts []string
		for _, p := range m.Content {
			switch p.Type {
			case model.PartToolUse:
				parts = append(parts, "use "+p.ID)
			case model.PartToolResult:
				parts = append(parts, fmt.Sprintf("result %s %s", p.Use, p.Result[0].Text))
			default:
				text := p.Text
				if strings.HasPrefix(text, model.NoticePrefix) {
					text = "notice"
				}
				parts = append(parts, text)
			}
		}
		out = append(out, m.Role+": "+strings.Join(parts, " | "))
	}
	return out
}

func TestTranscript(t *testing.T) {
	for name, test := range map[string]struct {
		log  *log
		want []string
	}{
		"replies of two calls are two messages": {
			new(log).user("go").call().uses("a").result("a", "1").call().uses("b").result("b", "2").call().says("m", "done"),
			[]string{"user: go", "assistant: use a", "user: result a 1", "assistant: use b", "user: result b 2", "assistant: done"},
		},
		"results stand right after their calls whatever the order they came in": {
			new(log).user("go").call().says("m", "two things").uses("a").uses("b").result("b", "2").result("a", "1"),
			[]string{"user: go", "assistant: two things | use a | use b", "user: result a 1 | result b 2"},
		},
		"packages that are missing are told beside what was lost": {
			new(log).user("go").call().uses("a").add("x", dormouse.SandboxStarted, dormouse.SandboxFact{Generation: 2, Processes: dormouse.ProcessesLost, Missing: "pip"}).result("a", "1"),
			[]string{"user: go", "assistant: use a", "user: result a 1 | notice | notice"},
		},
		"packages that were missing from the first": {
			new(log).add("x", dormouse.SandboxStarted, dormouse.SandboxFact{Generation: 1, Missing: "pip"}).user("go").call().uses("a").result("a", "1"),
			[]string{"user: notice | go", "assistant: use a", "user: result a 1"},
		},
		"what a sleeping sandbox's snapshot lacks is told once": {
			new(log).user("go").call().says("m", "done").
				add("x", dormouse.SnapshotTaken, dormouse.Snapshot{Reason: dormouse.SnapshotSealing, Left: []string{"s"}, LeftOut: 1}).
				add("y", dormouse.SnapshotTaken, dormouse.Snapshot{Reason: dormouse.SnapshotSealing, Left: []string{"s"}, LeftOut: 1}).
				add("z", dormouse.SnapshotTaken, dormouse.Snapshot{Reason: dormouse.SnapshotOfTurn}).user("on"),
			[]string{"user: go", "assistant: done", "user: notice | on"},
		},
		"the first result wins": {
			new(log).user("go").call().uses("a").result("a", "1").result("a", "again"),
			[]string{"user: go", "assistant: use a", "user: result a 1"},
		},
		"a call without a result gets one that says so": {
			new(log).user("go").call().uses("a").user("next"),
			[]string{"user: go", "assistant: use a", "user: result a " + "[dormouse: no result of this tool call was recorded. Verify before retrying.] | next"},
		},
		"a reply that was cut short is followed by a notice": {
			new(log).user("go").call().says("m", "hal").add("f", dormouse.OpFinished, dormouse.OpEnd{Partial: "m"}).call().says("n", "f done"),
			[]string{"user: go", "assistant: hal", "user: notice", "assistant: f done"},
		},
		"a turn that said nothing leaves no empty message": {
			new(log).user("one").call().user("two"),
			[]string{"user: one | two"},
		},
		"blank text is left out": {
			new(log).user("one").call().says("m", "  ").call().says("n", "hi"),
			[]string{"user: one", "assistant: hi"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := agent.Transcript(agent.ReadAll(test.log.events))
			if diff := cmp.Diff(test.want, sketch(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEveryTranscriptIsValid throws events together that no session would write.
func TestEveryTranscriptIsValid(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := new(log)
		for range r.IntN(30) {
			id := fmt.Sprint("x", r.IntN(6))
			switch r.IntN(8) {
			case 0, 1:
				l.user([]string{"hi", " ", "there"}[r.IntN(3)])
			case 2:
				l.call()
			case 3:
				l.says("m"+id, []string{"words", ""}[r.IntN(2)])
			case 4, 5:
				l.uses(id)
			case 6:
				l.result(id, []string{"out", ""}[r.IntN(2)])
			case 7:
				l.add("f", dormouse.OpFinished, dormouse.OpEnd{Partial: dormouse.EventID("m" + id)})
			}
		}
		m := agent.Transcript(agent.ReadAll(l.user("last").events))
		if err := model.ValidateTranscript(m); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(sketch(m), "\n"))
		}
	}
}

func TestASearchThatFoundNothingToReadIsNoOutput(t *testing.T) {
	l := new(log).user("find it").call().uses("a")
	l.add("ra", dormouse.UserCustomToolResult, dormouse.CustomToolResult{Use: "a", Content: []dormouse.Block{{
		Type: "search_result", Source: json.RawMessage(`" "`), Title: " ", Content: json.RawMessage(`[]`),
	}}})
	messages := agent.Transcript(agent.ReadAll(l.events))
	got := messages[len(messages)-1].Content[0].Result
	if want := []model.Part{{Type: model.PartText, Text: "(no output)"}}; !cmp.Equal(got, want) {
		t.Errorf("the model is told %+v", got)
	}
}
