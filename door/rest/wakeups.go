package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// scheduler schedules wake-ups, and reads those that were scheduled.
type scheduler interface {
	Given(ctx context.Context, id dormouse.SessionID, clientID string) (dormouse.Event, error)
	Now() time.Time
	Once(ctx context.Context, id dormouse.SessionID, by dormouse.Actor, v law.Verb) (again bool, err error)
}

func wakeupsOf(state law.State) []Wakeup {
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
		all[i].Text = excerpt(body)
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
func (req wakeupRequest) verb(id dormouse.SessionID, now time.Time) (law.Schedule, error) {
	v := law.Schedule{
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
		v.In = d
	case req.Cron == "" || req.At != "" || req.In != "":
		return v, fmt.Errorf("give one of \"at\", \"in\" and \"cron\": %w", dormouse.ErrInvalid)
	}
	if v.At.After(now.Add(maxAhead)) || v.In > maxAhead {
		return v, fmt.Errorf("a wake-up is at most %d days ahead: %w", maxAhead/(24*time.Hour), dormouse.ErrInvalid)
	}
	return v, nil
}

// schedule has a session prompt itself later. The same name is the same wake-up, though
// it may have fired since.
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
	again, err := s.Sessions.Once(ctx, state.Session, c.Who.Actor, v)
	if err != nil {
		return onThread(req.Thread, err)
	}
	status := http.StatusCreated
	if again {
		status = http.StatusOK
	}
	return c.Answer(status, s.scheduledWakeup(ctx, state.Session, v))
}

// scheduledWakeup is a wake-up that was just scheduled. It is durable even if it cannot
// be read now, or has fired.
func (s *Server) scheduledWakeup(ctx context.Context, id dormouse.SessionID, v law.Schedule) Wakeup {
	if state, err := s.Sessions.Peek(ctx, id); err == nil {
		if i := wakeupIndex(state, v.ID); i >= 0 {
			return wakeupsOf(state)[i]
		}
	}
	var first dormouse.Wakeup
	if e, err := s.Sessions.Given(ctx, id, string(v.ID)); err == nil {
		_ = json.Unmarshal(e.Payload, &first)
	}
	return Wakeup{ID: v.ID, Thread: v.Thread, At: first.At.UTC(), Cron: v.Cron}
}

func wakeupIndex(state law.State, id dormouse.WakeupID) int {
	return slices.IndexFunc(state.Wakeups, func(w law.Wakeup) bool { return w.ID == id })
}

// unschedule cancels a wake-up, which frees its place.
func (s *Server) unschedule(c call) error {
	wakeup := dormouse.WakeupID(c.R.PathValue("wakeup"))
	if wakeup.Validate() != nil {
		return fmt.Errorf("wake-up %q: %w", shorten(string(wakeup)), dormouse.ErrNotFound)
	}
	return s.command(c, law.Unschedule{ID: wakeup, Reason: requested})
}
