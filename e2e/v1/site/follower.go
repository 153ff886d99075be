package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/v1/schema"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// Event is what tests look at.
type Event struct {
	ID          string  `json:"id"`
	Type        string  `json:"type"`
	ProcessedAt *string `json:"processed_at"`
	StopReason  struct {
		Type     string   `json:"type"`
		EventIDs []string `json:"event_ids"`
	} `json:"stop_reason"`
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`

	Raw json.RawMessage `json:"-"`
}

// Text is what the event says.
func (e Event) Text() string {
	var all strings.Builder
	for _, b := range e.Content {
		all.WriteString(b.Text)
	}
	return all.String()
}

// Idle reports whether a session stopped, for this reason.
func (e Event) Idle(reason string) bool {
	return e.Type == "session.status_idle" && e.StopReason.Type == reason
}

// Follower follows a session by the rule for clients: open a stream, list the
// history, go on with the stream, take what comes twice once; and all of that
// again whenever the stream ends.
type Follower struct {
	site    *Site
	session string
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	seen    []Event         // guarded by mu; processed, in the order they came
	ids     map[string]bool // guarded by mu
	streams int             // guarded by mu
	err     error           // guarded by mu; why it gave up
	changed chan struct{}   // guarded by mu
}

// Follow begins to follow. It ends with Close.
func (s *Site) Follow(ctx context.Context, session string) *Follower {
	ctx, cancel := context.WithCancel(ctx)
	f := &Follower{site: s, session: session, cancel: cancel, done: make(chan struct{}), ids: make(map[string]bool), changed: make(chan struct{})}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			err := f.once(ctx)
			var no *Refusal
			if errors.As(err, &no) && no.Status < http.StatusInternalServerError {
				f.set(func() { f.err = err })
				return
			}
			_ = sleep.For(ctx, 5*time.Millisecond) // the server is coming back
		}
	}()
	return f
}

// Close ends it.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
}

func (f *Follower) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// take notes an event, once.
func (f *Follower) take(raw json.RawMessage) {
	var e Event
	if json.Unmarshal(raw, &e) != nil || e.ID == "" || e.ProcessedAt == nil {
		return
	}
	e.Raw = raw
	f.set(func() {
		if !f.ids[e.ID] {
			f.ids[e.ID] = true
			f.seen = append(f.seen, e)
		}
	})
}

// once follows one stream to its end.
func (f *Follower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.site.Proxy.URL()+"/v1/sessions/"+f.session+"/events/stream", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Api-Key", f.site.Token())
	res, err := f.site.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return &Refusal{Status: res.StatusCode}
	}
	f.set(func() { f.streams++ })
	history, err := f.site.Log(ctx, f.session)
	if err != nil {
		return err
	}
	for _, raw := range history {
		f.take(raw)
	}
	frames := schema.Frames{See: func(fr schema.Frame) {
		if fr.Event == "message" {
			f.take(fr.Data)
		}
	}}
	b := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(b)
		if _, bad := frames.Write(b[:n]); bad != nil {
			return bad
		}
		if err != nil {
			return err
		}
	}
}

// Seen is what came, and over how many streams.
func (f *Follower) Seen() (events []Event, streams int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Event(nil), f.seen...), f.streams
}

// Until waits until what was seen is enough.
func (f *Follower) Until(ctx context.Context, what string, enough func([]Event) bool) error {
	for {
		f.mu.Lock()
		seen, changed, err := f.seen, f.changed, f.err
		f.mu.Unlock()
		if enough(seen) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; %d events were seen, the last: %s", what, context.Cause(ctx), len(seen), last(seen))
		}
	}
}

func last(seen []Event) string {
	var text strings.Builder
	for _, e := range seen[max(0, len(seen)-5):] {
		fmt.Fprintf(&text, "\n%s", e.Raw)
	}
	return text.String()
}
