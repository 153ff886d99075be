package v1

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/session/law"
)

// inputEvent is one event as a client sends it.
type inputEvent struct {
	kind dormouse.EventType
	// What each kind has: content and thread, or the tool call it answers.
	content []dormouse.Block
	thread  dormouse.ThreadID
	use     dormouse.EventID
	result  string
	message string
	isError bool
}

// maxDenial bounds what is said to an agent that was denied a tool call.
const maxDenial = 10_000

// DecodeJSON implements closedjson.Decoder.
func (r *inputEvent) DecodeJSON(raw []byte) error {
	t, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch r.kind = dormouse.EventType(t); t {
	case "user.message", "system.message":
		return r.decodeMessage(raw)
	case "user.interrupt":
		var p struct {
			Type   string                      `json:"type"`
			Thread closedjson.Optional[string] `json:"session_thread_id"`
		}
		if err := closedjson.Bind(raw, &p); err != nil {
			return err
		}
		r.thread = dormouse.ThreadID(p.Thread.Value)
		return nil
	case "user.tool_confirmation":
		return r.decodeConfirmation(raw)
	case "user.custom_tool_result":
		var p struct {
			Type    string                        `json:"type"`
			Use     string                        `json:"custom_tool_use_id"`
			Content closedjson.Omittable[[]block] `json:"content"`
			IsError closedjson.Optional[bool]     `json:"is_error"`
		}
		if err := closedjson.Bind(raw, &p); err != nil {
			return err
		}
		r.content, r.isError = blocksOf(p.Content.Value), p.IsError.Value
		return r.answers("custom_tool_use_id", p.Use)
	case "user.tool_result":
		return closedjson.In("type", closedjson.Errorf("user.tool_result is for sessions of self_hosted environments; this one runs its tools itself"))
	case "user.define_outcome":
		return closedjson.In("type", closedjson.Errorf("outcomes are not served yet"))
	}
	return closedjson.In("type", closedjson.Errorf("%q is nothing a client sends", closedjson.Name(t)))
}

func (r *inputEvent) decodeMessage(raw []byte) error {
	var p struct {
		Type    string  `json:"type"`
		Content []block `json:"content"`
	}
	if err := closedjson.Bind(raw, &p); err != nil {
		return err
	}
	r.content = blocksOf(p.Content)
	if r.kind == dormouse.SystemMessage {
		for _, b := range r.content {
			if b.Type != "text" {
				return closedjson.In("content", closedjson.Errorf("a system message is text"))
			}
		}
	}
	if err := dormouse.ValidateContent(r.content); err != nil {
		return closedjson.Errorf("%s", sentence(err.Error()))
	}
	return nil
}

func (r *inputEvent) decodeConfirmation(raw []byte) error {
	var p struct {
		Type    string                      `json:"type"`
		Use     string                      `json:"tool_use_id"`
		Result  string                      `json:"result"`
		Message closedjson.Optional[string] `json:"deny_message"`
	}
	if err := closedjson.Bind(raw, &p); err != nil {
		return err
	}
	if p.Result != "allow" && p.Result != "deny" {
		return closedjson.In("result", closedjson.Errorf("must be allow or deny, not %q", closedjson.Name(p.Result)))
	}
	if p.Message.Given() && p.Result != "deny" {
		return closedjson.In("deny_message", closedjson.Errorf("is only for deny"))
	}
	if n := len([]rune(p.Message.Value)); n > maxDenial {
		return closedjson.In("deny_message", closedjson.Errorf("has %d characters, at most %d are taken", n, maxDenial))
	}
	r.result, r.message = p.Result, p.Message.Value
	return r.answers("tool_use_id", p.Use)
}

func (r *inputEvent) answers(field, use string) error {
	r.use = dormouse.EventID(use)
	if r.use.Validate() != nil {
		return closedjson.In(field, closedjson.Errorf("must be the id of a tool use, not %q", closedjson.Name(use)))
	}
	return nil
}

// steps lays a request out as what is asked of the session. name gives the n-th
// event its id; ids are those of the events, in their order.
func steps(events []inputEvent, name func(n int) dormouse.EventID, drawn bool) (out []law.Step, ids []dormouse.EventID, err error) {
	for n, e := range events {
		id := name(n)
		ids = append(ids, id)
		switch e.kind { //nolint:exhaustive // nothing else is received
		case dormouse.UserMessage:
			out = append(out, law.Step{Prompt: &law.Prompt{
				ID: id, Body: dormouse.DigestOf(dormouse.Encode(e.content)), Content: e.content, New: drawn,
			}})
		case dormouse.UserInterrupt:
			out = append(out, law.Step{Interrupt: &law.Interrupt{ID: id, Thread: e.thread, Always: true}})
		case dormouse.UserToolConfirmation:
			out = append(out, law.Step{Answer: &law.Answer{
				ID: id, Use: e.use, Allow: e.result == "allow", Deny: e.result == "deny", DenyMessage: e.message,
			}})
		case dormouse.UserCustomToolResult:
			out = append(out, law.Step{Answer: &law.Answer{ID: id, Use: e.use, Content: e.content, IsError: e.isError}})
		case dormouse.SystemMessage:
			if n == 0 || n != len(events)-1 {
				return nil, nil, invalidf("events[%d]: a system.message is the last of a request, right after a user.message or a tool result", n)
			}
			body := dormouse.SystemBody{ID: id, Content: e.content}
			switch before := &out[n-1]; {
			case before.Prompt != nil:
				before.Prompt.System = &body
				before.Prompt.Body = dormouse.DigestOf(dormouse.Encode([][]dormouse.Block{before.Prompt.Content, e.content}))
			case before.Answer != nil && events[n-1].kind == dormouse.UserCustomToolResult:
				out = append(out, law.Step{System: &body})
			default:
				return nil, nil, invalidf("events[%d]: a system.message follows a user.message or a tool result", n)
			}
		}
	}
	return out, ids, nil
}
