package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// questions lists what waits for people, in all threads.
func (s *Server) questions(c call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, err := s.peek(ctx, c)
	if err != nil {
		return err
	}
	calls, err := s.gatedCalls(ctx, state)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, struct {
		Questions []Question `json:"questions"`
	}{questionsOf(state, calls)})
}

func questionsOf(state law.State, calls gatedCalls) []Question {
	all := []Question{}
	for _, t := range state.Threads {
		if t.Turn == nil {
			continue
		}
		for _, use := range t.Turn.Uses {
			op, open := state.OpFor(use.ID)
			if use.Gate == dormouse.GateNone || !open {
				continue // it cannot be answered yet
			}
			asked := Question{
				ToolUse: use.ID, Kind: op.Kind, Thread: t.ID, Name: calls[use.ID].Name, Input: calls[use.ID].Input,
				Asked: op.Started, Expires: op.Expires,
			}
			if op.Kind == dormouse.OpQuestion {
				asked.Question, asked.Options = questionText(asked.Input)
			}
			all = append(all, asked)
		}
	}
	return all
}

// questionText reads the input of a question. An input that the tool could not read was
// never asked.
func questionText(input json.RawMessage) (question string, options []string) {
	var in struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
	}
	_ = json.Unmarshal(input, &in)
	return in.Question, in.Options
}

// gatedCalls is what the tool calls that wait for people say.
type gatedCalls map[dormouse.EventID]dormouse.ToolUse

func (g gatedCalls) waiting(t *law.Turn) []Waiting {
	var all []Waiting
	for _, use := range t.Uses {
		if use.Gate != dormouse.GateNone {
			all = append(all, Waiting{ID: use.ID, Gate: use.Gate, Name: g[use.ID].Name, Input: g[use.ID].Input})
		}
	}
	return all
}

// gatedCalls reads the tool calls that wait for people. They stand near the end
// of the log: what waits was asked last.
func (s *Server) gatedCalls(ctx context.Context, state law.State) (gatedCalls, error) {
	calls, missing := make(gatedCalls), make(map[dormouse.EventID]bool)
	for _, t := range state.Threads {
		if t.Turn != nil {
			for _, w := range calls.waiting(t.Turn) {
				missing[w.ID] = true
			}
		}
	}
	const page = 200
	for before := state.Seq; len(missing) > 0 && before > 0; {
		after := before - min(before, page)
		events, err := s.Sessions.Events(ctx, state.Session, after, page)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if !missing[e.ID] || e.Type != dormouse.AgentToolUse && e.Type != dormouse.AgentCustomToolUse {
				continue
			}
			var use dormouse.ToolUse
			if err := json.Unmarshal(e.Payload, &use); err != nil {
				return nil, fmt.Errorf("decode event %d: %w", e.Seq, err)
			}
			calls[e.ID] = use
			delete(missing, e.ID)
		}
		before = after
	}
	return calls, nil
}
