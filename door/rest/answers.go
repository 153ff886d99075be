package rest

import (
	"encoding/json"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

type answerRequest struct {
	ToolUse     dormouse.EventID `json:"tool_use_id"`
	Result      string           `json:"result"`
	DenyMessage string           `json:"deny_message"`
	Answer      json.RawMessage  `json:"answer"`
	// ID makes the answer idempotent: sent again under the same one it is answered alike.
	ID string `json:"id"`

	CustomToolUse dormouse.EventID `json:"custom_tool_use_id"`
	Content       json.RawMessage  `json:"content"`
	IsError       bool             `json:"is_error"`
}

// answer answers a tool call that waits for people. The first answer wins.
func (s *Server) answer(c call) error {
	var req answerRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	if err := checkName("id", req.ID); err != nil {
		return err
	}
	v, err := req.verb(dormouse.SessionID(c.R.PathValue("id")))
	if err != nil {
		return err
	}
	return s.command(c, v)
}

func (req answerRequest) verb(id dormouse.SessionID) (v law.Answer, err error) {
	v = law.Answer{ID: dormouse.EventID(named(dormouse.EventPrefix, id, req.ID)), Use: req.ToolUse}
	switch permits := req.Result != "" || req.DenyMessage != ""; {
	case (req.ToolUse == "") == (req.CustomToolUse == ""):
		err = fmt.Errorf("give either \"tool_use_id\" or \"custom_tool_use_id\": %w", dormouse.ErrInvalid)
	case req.CustomToolUse != "" && (permits || !absent(req.Answer)):
		err = fmt.Errorf("a custom tool is answered with \"content\" and nothing else: %w", dormouse.ErrInvalid)
	case req.CustomToolUse != "":
		v.Use, v.IsError = req.CustomToolUse, req.IsError
		v.Content, err = content("content", req.Content)
	case !absent(req.Content) || req.IsError:
		err = fmt.Errorf("\"content\" and \"is_error\" are the result of a custom tool; a permission is answered with \"result\", a question with \"answer\": %w", dormouse.ErrInvalid)
	case permits == !absent(req.Answer):
		err = fmt.Errorf("give either \"result\", to a permission, or \"answer\", to a question: %w", dormouse.ErrInvalid)
	case !permits:
		v.Content, err = content("answer", req.Answer)
	default:
		v.Allow, v.Deny, err = req.permission()
		v.DenyMessage = req.DenyMessage
	}
	if err != nil {
		return v, err
	}
	if err := v.Use.Validate(); err != nil {
		return v, fmt.Errorf("tool call: %w", err)
	}
	return v, nil
}

func (req answerRequest) permission() (allow, deny bool, err error) {
	const most = 10_000
	switch {
	case len(req.DenyMessage) > most:
		return false, false, fmt.Errorf("field \"deny_message\" is over %d bytes: %w", most, dormouse.ErrTooLarge)
	case req.Result == "allow" && req.DenyMessage == "":
		return true, false, nil
	case req.Result == "deny":
		return false, true, nil
	}
	return false, false, fmt.Errorf("field \"result\" must be \"allow\", or \"deny\" with an optional \"deny_message\": %w", dormouse.ErrInvalid)
}
