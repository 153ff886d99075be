package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// prompter queues prompts, and reads those that were queued.
type prompter interface {
	Once(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) (again bool, err error)
	Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error)
	Prompts(ctx context.Context, id dormouse.SessionID, statuses ...dormouse.PromptStatus) ([]dormouse.PromptRecord, error)
}

type promptRequest struct {
	Content json.RawMessage   `json:"content"`
	ID      string            `json:"id"`
	Thread  dormouse.ThreadID `json:"thread"`
}

// prompt queues what a client asks. Once it has answered, the prompt will be
// worked on whatever happens; the same id again is the same prompt.
func (s *Server) prompt(c call) error {
	var req promptRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	crash.At(crash.PromptParsed)
	if err := checkName("id", req.ID); err != nil {
		return err
	}
	body, err := content("content", req.Content)
	if err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return err
	}
	p, again, err := s.ask(ctx, c.Who, id, req.Thread, req.ID, body)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if again {
		status = http.StatusOK
	}
	if err := c.Answer(status, p); err != nil {
		return err
	}
	crash.At(crash.PromptAnswered)
	return nil
}

// ask queues a prompt on a thread, the primary one if none is named, or finds that
// it was queued before.
func (s *Server) ask(ctx context.Context, who auth.Principal, id dormouse.SessionID, thread dormouse.ThreadID, clientID string, body []dormouse.Block) (p Prompt, again bool, err error) {
	name, err := digest(body)
	if err != nil {
		return Prompt{}, false, err
	}
	prompt := law.Prompt{Thread: thread, ID: dormouse.EventID(session.NewID(dormouse.EventPrefix)), Body: name, Content: body}
	if thread == "" {
		prompt.Thread = dormouse.PrimaryThread(id)
	}
	if prompt.New = clientID == ""; !prompt.New {
		prompt.ID = dormouse.PromptID(id, clientID)
		// Also of a session that takes no more: what was accepted was accepted.
		prior, err := s.Sessions.Prompt(ctx, id, prompt.ID)
		switch {
		case err == nil && prior.Body == name && prior.Thread == prompt.Thread:
			return Prompt{ID: prior.ID, Status: prior.Status, Seq: prior.Seq}, true, nil
		case err == nil:
			return Prompt{}, false, fmt.Errorf("prompt %q was already sent with another body or to another thread: %w", shorten(clientID), dormouse.ErrConflict)
		case !errors.Is(err, dormouse.ErrNotFound):
			return Prompt{}, false, err
		}
	}
	// Another request may have sent it just now: the session decides which was
	// first.
	if again, err = s.Sessions.Once(ctx, id, who.Actor, prompt); err != nil {
		return Prompt{}, false, onThread(thread, err)
	}
	p = Prompt{ID: prompt.ID, Status: dormouse.PromptIsQueued}
	// It is durable; that its row cannot be read now changes nothing.
	if row, err := s.Sessions.Prompt(ctx, id, prompt.ID); err == nil {
		p.Status, p.Seq = row.Status, row.Seq
	}
	return p, again, nil
}

// queue lists the prompts that wait and those being worked on, oldest first.
func (s *Server) queue(c call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	id, err := s.own(ctx, c)
	if err != nil {
		return err
	}
	prompts, err := s.Sessions.Prompts(ctx, id, dormouse.PromptIsProcessing, dormouse.PromptIsQueued)
	if err != nil {
		return err
	}
	answer := struct {
		Prompts []Queued `json:"prompts"`
	}{Prompts: make([]Queued, 0, len(prompts))}
	for _, p := range prompts {
		body, err := s.contentAt(ctx, id, p.Seq)
		if err != nil {
			return err
		}
		answer.Prompts = append(answer.Prompts, Queued{PromptRecord: p, Text: excerpt(body)})
	}
	return c.Answer(http.StatusOK, answer)
}

// contentAt is what the prompt or the wake-up at seq says.
func (s *Server) contentAt(ctx context.Context, id dormouse.SessionID, seq uint64) ([]dormouse.Block, error) {
	events, err := s.Sessions.Events(ctx, id, seq-1, 1)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	var said dormouse.Message
	if err := json.Unmarshal(events[0].Payload, &said); err != nil {
		return nil, fmt.Errorf("decode event %d: %w", seq, err)
	}
	return said.Content, nil
}

// excerpt is the beginning of the text in content.
func excerpt(content []dormouse.Block) string {
	const most = 500
	var b strings.Builder
	for _, block := range content {
		if block.Type != "text" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if b.WriteString(block.Text); b.Len() > most {
			return strings.ToValidUTF8(b.String()[:most], "") + "…"
		}
	}
	return b.String()
}

// cancelPrompt takes a prompt out of the queue before its turn.
func (s *Server) cancelPrompt(c call) error {
	prompt := dormouse.EventID(c.R.PathValue("prompt"))
	if err := prompt.Validate(); err != nil {
		return fmt.Errorf("prompt %q: %w", shorten(string(prompt)), dormouse.ErrNotFound)
	}
	return s.command(c, law.Cancel{Prompt: prompt})
}
