package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Shown is what the server says of a session.
type Shown struct {
	Session dormouse.SessionID `json:"session"`
	Title   string             `json:"title"`
	Phase   dormouse.Phase     `json:"phase"`
	Status  dormouse.Status    `json:"status"`
	Seq     uint64             `json:"seq"`
	Queue   int                `json:"queue"`
	Sandbox struct {
		Phase      string `json:"phase"`
		Generation uint64 `json:"generation"`
	} `json:"sandbox"`
	Threads []struct {
		Turn *struct {
			ID      dormouse.TurnID `json:"id"`
			Attempt int             `json:"attempt"`
			Blocked string          `json:"blocked"`
			Waiting []struct {
				ID   dormouse.EventID `json:"id"`
				Gate dormouse.Gate    `json:"gate"`
				Name string           `json:"name"`
			} `json:"waiting"`
		} `json:"turn"`
	} `json:"threads"`
}

// Settled reports whether the session rests: nothing is wanted of the server.
// What waits for people rests as well.
func (s Shown) Settled() bool {
	switch s.Phase {
	case dormouse.PhaseReady, dormouse.PhaseHibernated, dormouse.PhaseError:
		return s.Queue == 0
	case dormouse.PhaseWaiting, dormouse.PhaseInterrupted:
		return true
	case dormouse.PhaseTerminated:
		return s.Sandbox.Phase == "cold"
	case dormouse.PhaseCreating, dormouse.PhaseRunning, dormouse.PhaseHibernating, dormouse.PhaseWaking:
		return false
	}
	return false
}

// Idle waits until the session rests and nothing of an earlier turn is left to
// be ended in its sandbox.
func (s *Session) Idle(ctx context.Context) (Shown, error) {
	for {
		shown, err := s.Until(ctx, Shown.Settled)
		if err != nil || shown.Turning() { // what a blocked turn left open is its own
			return shown, err
		}
		var ops struct {
			Ops []dormouse.OpRecord `json:"ops"`
		}
		if err := s.Get(ctx, s.Path("/ops?limit=100"), &ops); err != nil {
			return shown, err
		}
		open := dormouse.OpID("")
		for _, op := range ops.Ops {
			if op.Status == dormouse.OpOpen && op.Kind != dormouse.OpApproval && op.Kind != dormouse.OpCustom {
				open = op.ID
			}
		}
		if open == "" {
			return shown, nil
		}
		if err := Pause(ctx, 5*time.Millisecond); err != nil {
			return shown, fmt.Errorf("session is %s and %s is still open: %w", shown.Phase, open, err)
		}
	}
}

// Waiting lists the tool calls that people must answer.
func (s Shown) Waiting() []dormouse.EventID {
	var ids []dormouse.EventID
	for _, t := range s.Threads {
		if t.Turn == nil {
			continue
		}
		for _, w := range t.Turn.Waiting {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// Turning reports whether a turn is active or blocked.
func (s Shown) Turning() bool {
	for _, t := range s.Threads {
		if t.Turn != nil {
			return true
		}
	}
	return false
}

// Ack is a prompt that the server has said it accepted.
type Ack struct {
	ClientID string
	ID       dormouse.EventID
	Content  string
	// Cancelled says that the client asked for it not to run, or ended the
	// session, so that it may have been cancelled.
	Cancelled bool
}

// Session is one session as its client sees it: what it was promised, and what
// it followed.
type Session struct {
	*Client
	ID       dormouse.SessionID
	Follower *Follower

	mu   sync.Mutex
	acks []*Ack // guarded by mu
}

// Create makes a session, once, whatever happens to the server meanwhile: it is
// found again by its title. first, if not empty, is its first prompt.
func (c *Client) Create(ctx context.Context, title string, options map[string]any, first string) (*Session, error) {
	body := map[string]any{"title": title}
	maps.Copy(body, options)
	if first != "" {
		body["prompt"], body["prompt_id"] = first, "first"
	}
	s := &Session{Client: c}
	for {
		var made struct {
			Session dormouse.SessionID `json:"session"`
			Prompt  *struct {
				ID dormouse.EventID `json:"id"`
			} `json:"prompt"`
		}
		_, err := c.Once(ctx, http.MethodPost, "/api/sessions", body, &made)
		if err == nil {
			s.ID = made.Session
			if made.Prompt != nil {
				s.acks = append(s.acks, &Ack{ClientID: "first", ID: made.Prompt.ID, Content: first})
			}
			return s, nil
		}
		if !Again(err) {
			return nil, fmt.Errorf("create a session: %w", err)
		}
		if s.ID, err = c.find(ctx, title); err != nil {
			return nil, err
		}
		if s.ID != "" {
			if first != "" {
				return s, s.Prompt(ctx, "first", first)
			}
			return s, nil
		}
	}
}

func (c *Client) find(ctx context.Context, title string) (dormouse.SessionID, error) {
	var page struct {
		Sessions []Shown `json:"sessions"`
	}
	if err := c.Get(ctx, "/api/sessions?limit=200", &page); err != nil {
		return "", fmt.Errorf("list sessions: %w", err)
	}
	for _, s := range page.Sessions {
		if s.Title == title {
			return s.Session, nil
		}
	}
	return "", nil
}

// Path is the URL path of something of the session.
func (s *Session) Path(what string) string {
	return "/api/sessions/" + url.PathEscape(string(s.ID)) + what
}

// Prompt sends a prompt under an id until the server has accepted it.
func (s *Session) Prompt(ctx context.Context, clientID, content string) error {
	body := map[string]any{"content": content, "id": clientID}
	for {
		var answer struct {
			ID dormouse.EventID `json:"id"`
		}
		_, err := s.Once(ctx, http.MethodPost, s.Path("/prompts"), body, &answer)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.acks = append(s.acks, &Ack{ClientID: clientID, ID: answer.ID, Content: content})
			return nil
		}
		if !Again(err) {
			return fmt.Errorf("send prompt %q: %w", clientID, err)
		}
		if err := Pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// Acks lists what the server has accepted.
func (s *Session) Acks() []*Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Ack(nil), s.acks...)
}

// MayCancel notes that the client asked for every prompt so far not to run.
func (s *Session) MayCancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.acks {
		a.Cancelled = true
	}
}

// Show asks where the session stands.
func (s *Session) Show(ctx context.Context) (Shown, error) {
	var shown Shown
	err := s.Get(ctx, s.Path(""), &shown)
	return shown, err
}

// Until waits for the session to be as ok says, woken by what the follower
// sees.
func (s *Session) Until(ctx context.Context, ok func(Shown) bool) (Shown, error) {
	for {
		var changed <-chan struct{}
		if s.Follower != nil {
			changed = s.Follower.Changed()
		}
		shown, err := s.Show(ctx)
		if err != nil || ok(shown) {
			return shown, err
		}
		select {
		case <-ctx.Done():
			return shown, fmt.Errorf("session is %s, sandbox %s, %d queued: %w", shown.Phase, shown.Sandbox.Phase, shown.Queue, context.Cause(ctx))
		case <-changed:
			// A batch brings several events; the last of them is the answer.
			if err := Pause(ctx, time.Millisecond); err != nil {
				return shown, err
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Command posts something that is not a prompt, once.
func (s *Session) Command(ctx context.Context, what string, body any) error {
	if body == nil {
		body = struct{}{}
	}
	_, err := s.Once(ctx, http.MethodPost, s.Path("/"+what), body, nil)
	return err
}

// Insist posts a command until it is answered or done says that it has been
// carried out already.
func (s *Session) Insist(ctx context.Context, what string, body any, done func(Shown) bool) error {
	for {
		err := s.Command(ctx, what, body)
		if !Again(err) {
			return err
		}
		shown, err := s.Show(ctx)
		if err != nil || done(shown) {
			return err
		}
	}
}

// Events reads the whole log, with the core's own facts.
func (s *Session) Events(ctx context.Context) ([]dormouse.Event, error) {
	var all []dormouse.Event
	for after := uint64(0); ; {
		var page struct {
			Events []dormouse.Event `json:"events"`
			Next   uint64           `json:"next"`
			More   bool             `json:"more"`
		}
		if err := s.Get(ctx, s.Path(fmt.Sprintf("/events?all=true&limit=1000&after=%d", after)), &page); err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		all = append(all, page.Events...)
		if !page.More {
			return all, nil
		}
		if page.Next <= after {
			return nil, errors.New("read the log: the next page is this one")
		}
		after = page.Next
	}
}

// Rows is what the server lists of a session besides its log.
type Rows struct {
	Index   Shown
	Ops     []dormouse.OpRecord
	Prompts []dormouse.PromptRecord
}

// Rows reads what the server lists, which is derived from the log.
func (s *Session) Rows(ctx context.Context) (Rows, error) {
	var rows Rows
	var list struct {
		Sessions []Shown `json:"sessions"`
	}
	var ops struct {
		Ops []dormouse.OpRecord `json:"ops"`
	}
	var queue struct {
		Prompts []dormouse.PromptRecord `json:"prompts"`
	}
	err := errors.Join(
		s.Get(ctx, "/api/sessions?limit=200", &list),
		s.Get(ctx, s.Path("/ops?limit=1000"), &ops),
		s.Get(ctx, s.Path("/queue"), &queue))
	for _, row := range list.Sessions {
		if row.Session == s.ID {
			rows.Index = row
		}
	}
	rows.Ops, rows.Prompts = ops.Ops, queue.Prompts
	return rows, err
}

// Decode reads an event's payload; what cannot be read is empty.
func Decode[T any](e dormouse.Event) T {
	var p T
	_ = json.Unmarshal(e.Payload, &p) // the oracle fails on what is missing
	return p
}
