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
	"github.com/dormouse-run/dormouse/internal/sleep"
)

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
			if op.Status == dormouse.OpOpen && op.Kind.Verdict(op.Keyed, true) != dormouse.VerdictKeep {
				open = op.ID
			}
		}
		if open == "" {
			return shown, nil
		}
		if err := sleep.For(ctx, 5*time.Millisecond); err != nil {
			return shown, fmt.Errorf("session is %s and %s is still open: %w", shown.Phase, open, err)
		}
	}
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

	mu    sync.Mutex
	acks  []*Ack  // guarded by mu
	asked []Asked // guarded by mu
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
	all, err := c.List(ctx, "text="+url.QueryEscape(title))
	for _, s := range all {
		if s.Title == title {
			return s.Session, nil
		}
	}
	return "", err
}

// List lists the sessions that a query selects, however many there are.
func (c *Client) List(ctx context.Context, query string) ([]Shown, error) {
	list, err := c.list(ctx, query)
	all := make([]Shown, len(list))
	for i, raw := range list {
		err = errors.Join(err, json.Unmarshal(raw, &all[i]))
	}
	return all, err
}

// list is List as the server's JSON has it.
func (c *Client) list(ctx context.Context, query string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	for after := ""; ; {
		var page struct {
			Sessions []json.RawMessage  `json:"sessions"`
			Next     dormouse.SessionID `json:"next"`
		}
		err := c.Get(ctx, "/api/sessions?limit=200&"+query+after, &page)
		if r := Refused(err); r != nil && r.Status == http.StatusBadRequest && after != "" {
			all, after = nil, "" // the session that the next page begins after is gone
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		if all = append(all, page.Sessions...); page.Next == "" {
			return all, nil
		}
		after = "&after=" + url.QueryEscape(string(page.Next))
	}
}

// Children lists the sessions that one has spawned and the server has made.
func (s *Session) Children(ctx context.Context) ([]Shown, error) {
	return s.List(ctx, "archived=true&parent="+url.QueryEscape(string(s.ID)))
}

// Path is the URL path of something of the session.
func (s *Session) Path(what string) string {
	return "/api/sessions/" + url.PathEscape(string(s.ID)) + what
}

// Prompt sends a prompt under an id until the server has accepted it.
func (s *Session) Prompt(ctx context.Context, clientID, content string) error {
	return s.PromptOn(ctx, "", clientID, content)
}

// PromptOn sends a prompt to a thread, the primary one if none is named.
func (s *Session) PromptOn(ctx context.Context, thread dormouse.ThreadID, clientID, content string) error {
	body := map[string]any{"content": content, "id": clientID}
	if thread != "" {
		body["thread"] = thread
	}
	var answer struct {
		ID dormouse.EventID `json:"id"`
	}
	if err := s.Repeat(ctx, http.MethodPost, s.Path("/prompts"), body, &answer); err != nil {
		return fmt.Errorf("send prompt %q: %w", clientID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks = append(s.acks, &Ack{ClientID: clientID, ID: answer.ID, Content: content})
	return nil
}

// OpenThread opens a thread under a name.
func (s *Session) OpenThread(ctx context.Context, name string) (dormouse.ThreadID, error) {
	var answer struct {
		ID dormouse.ThreadID `json:"id"`
	}
	err := s.Repeat(ctx, http.MethodPost, s.Path("/threads"), map[string]any{"id": name}, &answer)
	return answer.ID, err
}

// Delete has the session removed, and returns once it is gone.
func (s *Session) Delete(ctx context.Context) error {
	err := s.Repeat(ctx, http.MethodDelete, s.Path(""), nil, nil)
	for err == nil {
		if err = sleep.For(ctx, 5*time.Millisecond); err == nil {
			_, err = s.Show(ctx)
		}
	}
	if Missing(err) {
		return nil // also if the answer to an earlier try was lost
	}
	return err
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
			if err := sleep.For(ctx, time.Millisecond); err != nil {
				return shown, err
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Sees waits until the follower has seen n events of a type.
func (s *Session) Sees(ctx context.Context, t dormouse.EventType, n int) error {
	for {
		changed := s.Follower.Changed()
		seen := 0
		for _, e := range s.Follower.Seen() {
			if e.Type == t {
				seen++
			}
		}
		if seen >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the follower saw %d of %d %s: %w", seen, n, t, context.Cause(ctx))
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
	Row     json.RawMessage // all that is listed of it
	Ops     []dormouse.OpRecord
	Prompts []dormouse.PromptRecord
}

// Rows reads what the server lists, which is derived from the log.
func (s *Session) Rows(ctx context.Context) (Rows, error) {
	var rows Rows
	var ops struct {
		Ops []dormouse.OpRecord `json:"ops"`
	}
	var queue struct {
		Prompts []dormouse.PromptRecord `json:"prompts"`
	}
	// There may be hundreds of others. One that was deleted has no title to look for.
	query := "archived=true"
	if shown, err := s.Show(ctx); err == nil {
		query += "&text=" + url.QueryEscape(shown.Title)
	} else if !Missing(err) {
		return rows, err
	}
	list, err := s.list(ctx, query)
	err = errors.Join(err,
		s.Get(ctx, s.Path("/ops?limit=1000"), &ops),
		s.Get(ctx, s.Path("/queue"), &queue))
	for _, raw := range list {
		var row Shown
		if err := json.Unmarshal(raw, &row); err == nil && row.Session == s.ID {
			rows.Index, rows.Row = row, raw
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
