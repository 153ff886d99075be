package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/model"
)

// calling is the journal of a turn that an attempt before this one left in the
// middle of a model call.
type calling struct {
	agent.Journal
	kept     map[int]string
	recorded chan struct{}
	full     int // how many chunks there is no room for
	finished agent.Finish
}

func (c *calling) View(context.Context) (agent.View, error) {
	return agent.View{
		Agent: dormouse.AgentConfig{Model: "any"}, Calls: 1,
		Ops: []dormouse.Op{{ID: "op_call", Kind: dormouse.OpModel, Keyed: true}},
	}, nil
}

func (c *calling) History(context.Context, uint64) ([]agent.Entry, error) { return nil, nil }

func (c *calling) Seen(context.Context, dormouse.OpID) (string, error) {
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(c.kept)) {
		b.WriteString(c.kept[n])
	}
	return b.String(), nil
}

func (c *calling) Chunk(_ context.Context, _ dormouse.OpID, at int, text string, _ int) error {
	if c.full > 0 {
		c.full--
		c.recorded <- struct{}{}
		return dormouse.ErrFull
	}
	c.kept[at] = text
	c.recorded <- struct{}{}
	return nil
}

func (c *calling) Finish(_ context.Context, f agent.Finish, _ *dormouse.Op) (bool, error) {
	c.finished = f
	return false, nil
}

// keyedModel says its words one by one, each once the one before is recorded,
// and then fails.
type keyedModel struct {
	words []string
	known int // how many are recorded already
	j     *calling
}

func (m *keyedModel) Keyed() bool { return true }

func (m *keyedModel) Model(string) (model.Model, error) { return m, nil }

func (m *keyedModel) Reply(_ context.Context, _ model.Request, delta func(model.Delta) error) (model.Reply, error) {
	for i, w := range m.words {
		if err := delta(model.Delta{Text: w}); err != nil {
			return model.Reply{}, err
		}
		if i < m.known {
			continue
		}
		select {
		case <-m.j.recorded:
		case <-time.After(10 * time.Second):
			return model.Reply{}, errors.New("a fragment was not recorded")
		}
	}
	return model.Reply{}, &model.Error{Kind: model.Overloaded, Err: errors.New("later")}
}

func (c *calling) run(t *testing.T, known int, words ...string) (seen, said string) {
	t.Helper()
	m := &keyedModel{words: words, known: known, j: c}
	err := agent.New(m, tool.Builtin()).Run(t.Context(), c)
	if f, ok := errors.AsType[*agent.Failure](err); !ok || !strings.Contains(f.Error(), "later") {
		t.Fatal(err)
	}
	for _, e := range c.finished.Events {
		var p dormouse.Message
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		said += p.Content[0].Text
	}
	seen, _ = c.Seen(t.Context(), "op_call")
	return seen, said
}

func TestAReplyThatIsTakenUpGoesOnWhereItStopped(t *testing.T) {
	c := &calling{kept: make(map[int]string), recorded: make(chan struct{}, 100)}
	for _, words := range []int{2, 4, 5} {
		known := len(c.kept)
		all := []string{"one ", "two ", "three ", "four ", "five "}[:words]
		want := strings.Join(all, "")
		// A clean stop gives the attempt back, so its number is the same again.
		if seen, said := c.run(t, known, all...); seen != want || said != want {
			t.Fatalf("seen %q, said %q, want %q", seen, said, want)
		}
	}
}

func TestWhatWasSeenStandsWhenTheCallCannotBeMadeAgain(t *testing.T) {
	c := &calling{kept: make(map[int]string), recorded: make(chan struct{}, 100)}
	c.run(t, 0, "one ", "two ")
	if _, said := c.run(t, 0); said != "one two " {
		t.Errorf("said %q", said)
	}
}

func TestAFullDiskLeavesNoHoleInWhatWasSeen(t *testing.T) {
	c := &calling{kept: make(map[int]string), recorded: make(chan struct{}, 100), full: 1}
	if seen, said := c.run(t, 0, "one ", "two ", "three "); seen != "one two three " || said != seen {
		t.Errorf("seen %q, said %q", seen, said)
	}
}

// thinker thinks, and says one thing.
type thinker struct{}

func (thinker) Model(string) (model.Model, error) { return thinker{}, nil }
func (thinker) Keyed() bool                       { return true }

func (thinker) Reply(context.Context, model.Request, func(model.Delta) error) (model.Reply, error) {
	return model.Reply{Thought: true, Content: []model.Part{{Type: model.PartText, Text: "so"}}, StopReason: model.StopEndTurn}, nil
}

// thinking is the journal of its call, and nothing after.
type thinking struct{ calling }

func (c *thinking) View(ctx context.Context) (agent.View, error) {
	if c.finished.Op != "" {
		return agent.View{}, errSeen
	}
	return c.calling.View(ctx)
}

func TestThatAModelThoughtIsToldBeforeWhatItSaid(t *testing.T) {
	c := &thinking{calling{kept: make(map[int]string), recorded: make(chan struct{}, 100)}}
	if err := agent.New(thinker{}, tool.Builtin()).Run(t.Context(), c); !errors.Is(err, errSeen) {
		t.Fatal(err)
	}
	var got []dormouse.EventType
	for _, e := range c.finished.Events {
		got = append(got, e.Type)
	}
	if !slices.Equal(got, []dormouse.EventType{dormouse.AgentThinking, dormouse.AgentMessage}) || string(c.finished.Events[0].Payload) != "{}" {
		t.Errorf("it told %v", got)
	}
}
