package rest

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// command asks a session for something and answers with where it stands then.
func (s *Server) command(c *call, v session.Verb) error {
	ctx, cancel := c.ctx()
	defer cancel()
	row, err := s.row(ctx, c)
	if err != nil {
		return err
	}
	if err := s.Sessions.Do(ctx, row.Session, c.who.Actor, v); err != nil {
		return err
	}
	if row, err = s.Sessions.Row(ctx, row.Session); err != nil {
		return err
	}
	return c.answer(http.StatusOK, row)
}

// empty refuses a body where there is nothing to say.
type empty struct{}

func (s *Server) interrupt(c *call) error {
	var req struct {
		FlushQueue bool `json:"flush_queue"`
	}
	if err := c.decode(&req); err != nil {
		return err
	}
	return s.command(c, session.Interrupt{ID: dormouse.EventID(session.NewID(dormouse.EventPrefix)), Flush: req.FlushQueue})
}

func (s *Server) retry(c *call) error     { return s.plain(c, session.Retry{}) }
func (s *Server) goOn(c *call) error      { return s.plain(c, session.Continue{}) }
func (s *Server) hibernate(c *call) error { return s.plain(c, session.Hibernate{}) }
func (s *Server) wake(c *call) error      { return s.plain(c, session.Wake{}) }

func (s *Server) plain(c *call, v session.Verb) error {
	if err := c.decode(&empty{}); err != nil {
		return err
	}
	return s.command(c, v)
}

func (s *Server) terminate(c *call) error {
	var req struct {
		Reason string `json:"reason"`
	}
	if err := c.decode(&req); err != nil {
		return err
	}
	const most = 1000
	if len(req.Reason) > most {
		return fmt.Errorf("field \"reason\" is over %d bytes: %w", most, dormouse.ErrTooLarge)
	}
	if req.Reason == "" {
		req.Reason = "requested"
	}
	return s.command(c, session.Terminate{Reason: req.Reason})
}

type answerRequest struct {
	ToolUse     dormouse.EventID `json:"tool_use_id"`
	Result      string           `json:"result"`
	DenyMessage string           `json:"deny_message"`

	CustomToolUse dormouse.EventID `json:"custom_tool_use_id"`
	Content       json.RawMessage  `json:"content"`
	IsError       bool             `json:"is_error"`
}

// answer answers a tool call that waits for people. The first answer wins.
func (s *Server) answer(c *call) error {
	var req answerRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	v, err := req.verb()
	if err != nil {
		return err
	}
	return s.command(c, v)
}

func (req answerRequest) verb() (session.Answer, error) {
	v := session.Answer{ID: dormouse.EventID(session.NewID(dormouse.EventPrefix)), Use: req.ToolUse}
	switch {
	case (req.ToolUse == "") == (req.CustomToolUse == ""):
		return v, fmt.Errorf("give either \"tool_use_id\" or \"custom_tool_use_id\": %w", dormouse.ErrInvalid)
	case req.CustomToolUse != "":
		if req.Result != "" || req.DenyMessage != "" {
			return v, fmt.Errorf("a custom tool is answered with \"content\", not with a permission: %w", dormouse.ErrInvalid)
		}
		body, err := content("content", req.Content)
		if err != nil {
			return v, err
		}
		v.Use, v.Content, v.IsError = req.CustomToolUse, body, req.IsError
	case !absent(req.Content) || req.IsError:
		return v, fmt.Errorf("a permission is answered with \"result\", not with content: %w", dormouse.ErrInvalid)
	case req.Result == "allow" && req.DenyMessage == "":
		v.Allow = true
	case req.Result == "deny":
		const most = 10_000
		if len(req.DenyMessage) > most {
			return v, fmt.Errorf("field \"deny_message\" is over %d bytes: %w", most, dormouse.ErrTooLarge)
		}
		v.Deny, v.DenyMessage = true, req.DenyMessage
	default:
		return v, fmt.Errorf("field \"result\" must be \"allow\", or \"deny\" with an optional \"deny_message\": %w", dormouse.ErrInvalid)
	}
	if err := v.Use.Validate(); err != nil {
		return v, fmt.Errorf("tool call: %w", err)
	}
	return v, nil
}
