package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

// Wakeup is a prompt that a session will give itself.
type Wakeup struct {
	ID     dormouse.WakeupID `json:"id"`
	Thread dormouse.ThreadID `json:"thread"`
	// At is when it fires next.
	At   time.Time `json:"at"`
	Cron string    `json:"cron,omitempty"`
	// Text is the beginning of what it says; only lists have it.
	Text string `json:"text,omitempty"`
}

func wakeupsOf(state session.State) []Wakeup {
	all := make([]Wakeup, 0, len(state.Wakeups))
	for _, w := range state.Wakeups {
		all = append(all, Wakeup{ID: w.ID, Thread: w.Thread, At: w.At, Cron: w.Cron})
	}
	return all
}

// wakeups lists what is scheduled.
func (s *Server) wakeups(c call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, err := s.peek(ctx, c)
	if err != nil {
		return err
	}
	all := wakeupsOf(state)
	for i, w := range state.Wakeups {
		body, err := s.contentAt(ctx, state.Session, w.Seq)
		if err != nil {
			return err
		}
		all[i].Text = beginning(body)
	}
	return c.Answer(http.StatusOK, struct {
		Wakeups []Wakeup `json:"wakeups"`
	}{all})
}

type wakeupRequest struct {
	At     string            `json:"at"`
	In     string            `json:"in"`
	Cron   string            `json:"cron"`
	Prompt json.RawMessage   `json:"prompt"`
	ID     string            `json:"id"`
	Thread dormouse.ThreadID `json:"thread"`
}

// maxAhead is how far ahead a wake-up may be.
const maxAhead = 366 * 24 * time.Hour

// verb is what is asked of the session at the time now.
func (req wakeupRequest) verb(id dormouse.SessionID, now time.Time) (session.Schedule, error) {
	v := session.Schedule{
		Thread: req.Thread, ID: dormouse.WakeupID(named(dormouse.WakeupPrefix, id, req.ID)), Cron: req.Cron,
	}
	if v.Thread == "" {
		v.Thread = dormouse.PrimaryThread(id)
	}
	if err := checkName("id", req.ID); err != nil {
		return v, err
	}
	var err error
	if v.Content, err = content("prompt", req.Prompt); err != nil {
		return v, err
	}
	switch {
	case req.At != "" && req.In == "" && req.Cron == "":
		if v.At, err = time.Parse(time.RFC3339, req.At); err != nil || v.At.IsZero() {
			return v, fmt.Errorf("field \"at\" must be a time such as %q: %w", now.UTC().Format(time.RFC3339), dormouse.ErrInvalid)
		}
	case req.In != "" && req.At == "" && req.Cron == "":
		d, err := time.ParseDuration(req.In)
		if err != nil || d <= 0 {
			return v, fmt.Errorf("field \"in\" must be a duration such as \"10m\": %w", dormouse.ErrInvalid)
		}
		v.At = now.Add(d)
	case req.Cron == "" || req.At != "" || req.In != "":
		return v, fmt.Errorf("give one of \"at\", \"in\" and \"cron\": %w", dormouse.ErrInvalid)
	}
	if v.At.After(now.Add(maxAhead)) {
		return v, fmt.Errorf("a wake-up is at most %d days ahead: %w", maxAhead/(24*time.Hour), dormouse.ErrInvalid)
	}
	return v, nil
}

// schedule has a session prompt itself later. As long as a wake-up is scheduled,
// the same name is the same wake-up.
func (s *Server) schedule(c call) error {
	var req wakeupRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	state, err := s.peek(ctx, c)
	if err != nil {
		return err
	}
	v, err := req.verb(state.Session, s.Sessions.Now())
	if err != nil {
		return err
	}
	if i := placeOf(state, v.ID); i >= 0 {
		if err := s.sameWakeup(ctx, state, state.Wakeups[i], v, req.At != ""); err != nil {
			return err
		}
		return c.Answer(http.StatusOK, wakeupsOf(state)[i])
	}
	if err := s.Sessions.Do(ctx, state.Session, c.Who.Actor, v); err != nil {
		return onThread(req.Thread, err)
	}
	shown := Wakeup{ID: v.ID, Thread: v.Thread, At: v.At.UTC(), Cron: v.Cron}
	// It is durable; that it cannot be read now, or has fired, changes nothing.
	if state, err := s.Sessions.Peek(ctx, state.Session); err == nil {
		if i := placeOf(state, v.ID); i >= 0 {
			shown = wakeupsOf(state)[i]
		}
	}
	return c.Answer(http.StatusCreated, shown)
}

func placeOf(state session.State, id dormouse.WakeupID) int {
	return slices.IndexFunc(state.Wakeups, func(w session.Wakeup) bool { return w.ID == id })
}

// sameWakeup refuses a wake-up that was scheduled otherwise under the same name;
// timed says that a time was asked for.
func (s *Server) sameWakeup(ctx context.Context, state session.State, w session.Wakeup, v session.Schedule, timed bool) error {
	body, err := s.contentAt(ctx, state.Session, w.Seq)
	if err != nil {
		return err
	}
	was, err := digest(body)
	if err != nil {
		return err
	}
	is, err := digest(v.Content)
	if err != nil {
		return err
	}
	if was != is || w.Thread != v.Thread || w.Cron != v.Cron || timed && !w.At.Equal(v.At.Truncate(time.Microsecond)) {
		return fmt.Errorf("wake-up %s is already scheduled otherwise: %w", v.ID, dormouse.ErrConflict)
	}
	return nil
}

// unschedule cancels a wake-up, which frees its place.
func (s *Server) unschedule(c call) error {
	wakeup := dormouse.WakeupID(c.R.PathValue("wakeup"))
	if wakeup.Validate() != nil {
		return fmt.Errorf("wake-up %q: %w", shorten(string(wakeup)), dormouse.ErrNotFound)
	}
	return s.command(c, session.Unschedule{ID: wakeup, Reason: requested})
}
