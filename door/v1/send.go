package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// commander gives commands to sessions.
type commander interface {
	Do(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) error
}

// send takes the events of a client, all or none of them, and answers once they are
// durable.
func (s *Server) send(c call) error {
	var req struct {
		Events []inputEvent `json:"events"`
	}
	body, err := c.decodeBody(&req)
	if err != nil {
		return err
	}
	if n := len(req.Events); n == 0 || n > law.MaxSteps {
		return invalidf("events: 1 to %d are taken at once, not %d", law.MaxSteps, n)
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return err
	}
	name := func(int) dormouse.EventID { return dormouse.EventID(session.NewID(dormouse.EventPrefix)) }
	v := law.Send{}
	if key != "" {
		name = func(n int) dormouse.EventID { return eventIDFromKey(id, key, n) }
		v.Request, v.Body = eventIDFromKey(id, key, -1), dormouse.DigestOf(body)
	}
	steps, ids, err := steps(req.Events, name, key == "")
	if err != nil {
		return err
	}
	if v.Steps, err = s.interruptThreads(ctx, id, steps); err != nil {
		return err
	}
	crash.At(crash.PromptParsed)
	sent, err := s.sendOnce(ctx, c, id, v, ids)
	if err != nil {
		return wrongState(err)
	}
	crash.At(crash.PromptAnswered)
	c.Send(http.StatusOK, encodeList(sent, nil))
	return nil
}

// encodeList is a list of events that are encoded already.
func encodeList(events []json.RawMessage, more []byte) []byte {
	size := len(more) + len(`{"data":[]}`)
	for _, e := range events {
		size += len(e) + 1
	}
	b := append(make([]byte, 0, size), `{"data":[`...)
	for i, e := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	return append(append(append(b, ']'), more...), '}')
}

// sendOnce sends events to the session and returns them as they are stored. An equal
// answer to a tool call that is in the log already is not sent again.
func (s *Server) sendOnce(ctx context.Context, c call, id dormouse.SessionID, v law.Send, ids []dormouse.EventID) ([]json.RawMessage, error) {
	err := s.Sessions.Do(ctx, id, c.Who.Actor, v)
	known := make(map[dormouse.EventID]dormouse.Event)
	if errors.Is(err, dormouse.ErrConflict) && !errors.Is(err, law.ErrOtherRequest) || errors.Is(err, dormouse.ErrTerminated) {
		var again error
		if known, again = s.answered(ctx, id, v.Steps); again != nil {
			return nil, again
		}
		if len(known) > 0 {
			left := v
			left.Steps = slices.DeleteFunc(slices.Clone(v.Steps), func(s law.Step) bool {
				_, ok := known[stepID(s)]
				return ok
			})
			if err = nil; len(left.Steps) > 0 {
				err = s.Sessions.Do(ctx, id, c.Who.Actor, left)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return s.stored(ctx, id, v, ids, known)
}

// stored encodes the events of a request. Prompts wait; the others were processed at
// once, and are read back for their time.
func (s *Server) stored(ctx context.Context, id dormouse.SessionID, v law.Send, ids []dormouse.EventID, known map[dormouse.EventID]dormouse.Event) ([]json.RawMessage, error) {
	out := make(map[dormouse.EventID]json.RawMessage)
	var find []dormouse.EventID
	for _, step := range v.Steps {
		name := stepID(step)
		switch {
		case step.Prompt != nil && v.Request == "":
			e := dormouse.Event{ID: name, Payload: dormouse.Encode(dormouse.PromptBody{Content: step.Prompt.Content, System: step.Prompt.System})}
			queued, named := queuedEvents(&e)
			for i, raw := range queued {
				out[named[i]] = raw
			}
		case slices.Contains(ids, name):
			if e, ok := known[name]; ok {
				out[name] = viewOf(id).appendEvent(nil, &e)
				continue
			}
			find = append(find, name)
		}
	}
	if v.Request != "" {
		find = slices.DeleteFunc(slices.Clone(ids), func(id dormouse.EventID) bool { return out[id] != nil })
	}
	if len(find) > 0 {
		if err := s.find(ctx, id, find, out); err != nil {
			return nil, err
		}
	}
	list := make([]json.RawMessage, 0, len(ids))
	for _, id := range ids {
		if raw := out[id]; raw != nil {
			list = append(list, raw)
		}
	}
	return list, nil
}

func stepID(s law.Step) dormouse.EventID {
	switch {
	case s.Prompt != nil:
		return s.Prompt.ID
	case s.Interrupt != nil:
		return s.Interrupt.ID
	case s.Answer != nil:
		return s.Answer.ID
	case s.System != nil:
		return s.System.ID
	}
	return ""
}

// find reads events back, the newest first. A queued event is there once as queued, and
// perhaps once more as taken, which is newer.
func (s *Server) find(ctx context.Context, id dormouse.SessionID, ids []dormouse.EventID, out map[dormouse.EventID]json.RawMessage) error {
	row, err := s.Sessions.Row(ctx, id)
	if err != nil {
		return err
	}
	v, left := viewOf(id), len(ids)
	return s.backwards(ctx, id, row.Seq, func(e *dormouse.Event) bool {
		if e.Type == dormouse.PromptQueued {
			queued, named := queuedEvents(e)
			for i, id := range named {
				if slices.Contains(ids, id) && out[id] == nil {
					out[id], left = queued[i], left-1
				}
			}
		} else if slices.Contains(ids, e.ID) && out[e.ID] == nil {
			out[e.ID], left = v.appendEvent(nil, e), left-1
		}
		return left > 0
	})
}

// answered finds the answers to tool calls that the log already has, as they were
// asked for now, and what was said to the model with one of them.
func (s *Server) answered(ctx context.Context, id dormouse.SessionID, steps []law.Step) (map[dormouse.EventID]dormouse.Event, error) {
	open := make(map[dormouse.EventID]*law.Answer)
	for _, step := range steps {
		if step.Answer != nil {
			open[step.Answer.Use] = step.Answer
		}
	}
	known := make(map[dormouse.EventID]dormouse.Event)
	if len(open) == 0 {
		return known, nil
	}
	row, err := s.Sessions.Row(ctx, id)
	if err != nil {
		return nil, err
	}
	said := steps[len(steps)-1].System
	var after dormouse.Event // the system message that follows
	err = s.backwards(ctx, id, row.Seq, func(e *dormouse.Event) bool {
		switch e.Type { //nolint:exhaustive // only these answer, and only those are answered
		case dormouse.SystemMessage:
			after = *e
		case dormouse.UserToolConfirmation, dormouse.UserCustomToolResult:
			for use, a := range open {
				if !answersSame(e, a) {
					continue
				}
				known[a.ID] = *e
				delete(open, use)
				if said != nil && a == steps[len(steps)-2].Answer && after.Time.Equal(e.Time) && saysSame(&after, said) {
					known[said.ID] = after
				}
			}
		case dormouse.AgentToolUse, dormouse.AgentCustomToolUse:
			delete(open, e.ID) // what is before it does not answer it
		}
		return len(open) > 0
	})
	return known, err
}

func saysSame(e *dormouse.Event, b *dormouse.SystemBody) bool {
	var m dormouse.Message
	_ = json.Unmarshal(e.Payload, &m)
	return dormouse.DigestOf(dormouse.Encode(m.Content)) == dormouse.DigestOf(dormouse.Encode(b.Content))
}

func answersSame(e *dormouse.Event, a *law.Answer) bool {
	if e.Type == dormouse.UserToolConfirmation {
		var p dormouse.ToolConfirmation
		_ = json.Unmarshal(e.Payload, &p)
		return p.Use == a.Use && (p.Result == "allow") == a.Allow && (p.Result == "deny") == a.Deny && p.DenyMessage == a.DenyMessage
	}
	var p dormouse.CustomToolResult
	_ = json.Unmarshal(e.Payload, &p)
	same := dormouse.DigestOf(dormouse.Encode(p.Content)) == dormouse.DigestOf(dormouse.Encode(a.Content)) || len(p.Content)+len(a.Content) == 0
	return p.Use == a.Use && p.IsError == a.IsError && same && !a.Allow && !a.Deny
}

// interruptThreads adds to an interrupt of the whole session those of its other threads.
func (s *Server) interruptThreads(ctx context.Context, id dormouse.SessionID, steps []law.Step) ([]law.Step, error) {
	if !slices.ContainsFunc(steps, func(s law.Step) bool { return s.Interrupt != nil && s.Interrupt.Thread == "" }) {
		return steps, nil
	}
	state, err := s.Sessions.Peek(ctx, id)
	if err != nil || len(state.Threads) < 2 {
		return steps, err
	}
	var out []law.Step
	for _, step := range steps {
		out = append(out, step)
		if step.Interrupt == nil || step.Interrupt.Thread != "" {
			continue
		}
		for _, t := range state.Threads[1:] {
			if t.Turn != nil {
				out = append(out, law.Step{Interrupt: &law.Interrupt{
					Thread: t.ID, ID: dormouse.EventID(session.NewID(dormouse.EventPrefix)),
				}})
			}
		}
	}
	return out, nil
}

// eventIDFromKey is the id of the n-th event of a request that a client gave a key.
func eventIDFromKey(id dormouse.SessionID, key string, n int) dormouse.EventID {
	return dormouse.EventID(dormouse.DeriveID(dormouse.EventPrefix, string(id), "key", key, strconv.Itoa(n)))
}
