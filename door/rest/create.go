package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session"
)

// creator creates sessions, and reads what one was created with.
type creator interface {
	Create(ctx context.Context, by dormouse.Actor, c dormouse.Created) (dormouse.SessionRow, error)
	Created(ctx context.Context, id dormouse.SessionID) (dormouse.Created, error)
}

type createRequest struct {
	Title       string                 `json:"title"`
	Agent       string                 `json:"agent"`
	Model       string                 `json:"model"`
	System      string                 `json:"system"`
	Tools       *[]dormouse.ToolConfig `json:"tools"`
	CustomTools []dormouse.CustomTool  `json:"custom_tools"`
	Recovery    dormouse.Recovery      `json:"recovery"`
	SleepAfter  *string                `json:"sleep_after"`
	Warm        *bool                  `json:"warm"`
	Environment dormouse.Environment   `json:"environment"`
	Tags        []string               `json:"tags"`
	Metadata    map[string]*string     `json:"metadata"`
	Parent      dormouse.SessionID     `json:"parent"`
	Prompt      json.RawMessage        `json:"prompt"`
	PromptID    string                 `json:"prompt_id"`
}

// createSession creates a session and answers at once, without waiting for the
// sandbox.
func (s *Server) createSession(c call) error {
	var req createRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	asked := !absent(req.Prompt)
	var body []dormouse.Block
	var err error
	if asked { // all of it is checked before any of it is done
		crash.At(crash.PromptParsed)
		if body, err = content("prompt", req.Prompt); err != nil {
			return err
		}
	} else if req.PromptID != "" {
		return fmt.Errorf("field \"prompt_id\" is given without a prompt: %w", dormouse.ErrInvalid)
	}
	ctx, cancel := c.Context()
	defer cancel()
	like, err := s.defaults(ctx, c, req.Parent)
	if err != nil {
		return err
	}
	made, err := s.complete(req, like)
	if err != nil {
		return err
	}
	made.Tenant, made.Owner = c.Who.Tenant, c.Who.Actor
	answer := Created{}
	if answer.Row, err = s.Sessions.Create(ctx, c.Who.Actor, made); err != nil {
		return err
	}
	if !asked {
		return c.Answer(http.StatusCreated, answer)
	}
	if err := s.firstPrompt(ctx, c, &answer, req.PromptID, body); err != nil {
		return fmt.Errorf("session %s was made, but its prompt was not queued: %w", answer.Session, err)
	}
	if err := c.Answer(http.StatusCreated, answer); err != nil {
		return err
	}
	crash.At(crash.PromptAnswered)
	return nil
}

func (s *Server) firstPrompt(ctx context.Context, c call, made *Created, clientID string, body []dormouse.Block) error {
	p, _, err := s.ask(ctx, c.Who, made.Session, "", clientID, body)
	if err != nil {
		return err
	}
	made.Prompt = &p
	if row, err := s.Sessions.Row(ctx, made.Session); err == nil {
		made.Row = row
	}
	return nil
}

// defaults returns the configuration of a session for all that the request leaves out:
// that of its parent for a child, else that of the server.
func (s *Server) defaults(ctx context.Context, c call, parent dormouse.SessionID) (dormouse.Created, error) {
	if parent == "" {
		return dormouse.Created{Agent: s.Agent, Recovery: dormouse.RecoverAuto, SleepAfter: s.SleepAfter}, nil
	}
	if _, err := c.Own(ctx, s.Sessions, parent); err != nil {
		return dormouse.Created{}, fmt.Errorf("parent: %w", err)
	}
	made, err := s.Sessions.Created(ctx, parent)
	if err != nil {
		return dormouse.Created{}, fmt.Errorf("parent: %w", err)
	}
	return dormouse.Created{
		Parent: parent, Agent: made.Agent, Recovery: made.Recovery, FlushOnError: made.FlushOnError, SleepAfter: made.SleepAfter,
	}, nil
}

// complete fills what a request leaves open.
func (s *Server) complete(req createRequest, made dormouse.Created) (dormouse.Created, error) {
	made.Session = dormouse.SessionID(session.NewID(dormouse.SessionPrefix))
	made.Title, made.Tags, made.Warm = req.Title, dormouse.CleanTags(req.Tags), true
	for key, value := range req.Metadata {
		if made.Metadata == nil {
			made.Metadata = make(map[string]string)
		}
		if value != nil {
			made.Metadata[key] = *value
		}
	}
	made.Agent = req.agentFrom(made.Agent)
	if req.Recovery != "" {
		made.Recovery = req.Recovery
	}
	made.Environment = req.Environment // a child has its parent's, and may name none
	if req.Warm != nil {
		made.Warm = *req.Warm
	}
	if req.SleepAfter != nil {
		d, err := time.ParseDuration(*req.SleepAfter)
		if err != nil || d < 0 {
			return made, fmt.Errorf("field \"sleep_after\" must be a duration such as \"5m\", or \"0s\" for never: %w", dormouse.ErrInvalid)
		}
		made.SleepAfter = d
	}
	if err := checkName("prompt_id", req.PromptID); err != nil {
		return made, err
	}
	if err := made.Validate(); err != nil || s.CheckAgent == nil {
		return made, err
	}
	return made, s.CheckAgent(made.Agent)
}

// agentFrom is the agent that a request asks for, with the rest taken from like.
func (req createRequest) agentFrom(like dormouse.AgentConfig) dormouse.AgentConfig {
	agent := like
	agent.Tools = slices.Clone(like.Tools)
	if req.Agent != "" {
		agent.Name = req.Agent
	}
	if req.Model != "" {
		agent.Model = req.Model
	}
	if req.System != "" {
		agent.System = req.System
	}
	if req.Tools != nil {
		agent.Tools = *req.Tools
	}
	if req.CustomTools != nil {
		agent.CustomTools = req.CustomTools
	}
	return agent
}
