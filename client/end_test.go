package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

// says answers with a status, a content type and a body.
func says(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestAnAnswerThatIsNoStreamEndsAFollower(t *testing.T) {
	for name, act := range map[string]http.HandlerFunc{
		"HTML":                      says(http.StatusOK, "text/html; charset=utf-8", "<html>Down for maintenance</html>"),
		"JSON":                      says(http.StatusOK, "application/json", `{"events":[]}`),
		"no type":                   func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil },
		"a stream with status 202":  says(http.StatusAccepted, "text/event-stream", event(1)),
		"no content":                says(http.StatusNoContent, "", ""),
		"no content, called stream": says(http.StatusNoContent, "text/event-stream", ""),
	} {
		s, c := play(t, act)
		seqs, err := follow(t, c, client.FollowOptions{}, 9)
		if len(seqs) != 0 || !errors.Is(err, client.ErrGarbled) || len(s.requests()) != 1 {
			t.Errorf("%s: %d requests, events %v: %v", name, len(s.requests()), seqs, err)
		}
	}
	_, c := play(t, says(http.StatusOK, "Text/Event-Stream; charset=utf-8", event(1)))
	if seqs, err := follow(t, c, client.FollowOptions{}, 1); !slices.Equal(seqs, []uint64{1}) || !errors.Is(err, errEnough) {
		t.Errorf("a type with a parameter: events %v: %v", seqs, err)
	}
}

func TestAStatusEndsAFollowerIfTryingAgainWouldNotHelp(t *testing.T) {
	const damaged = `{"error":{"type":"damaged","message":"log is damaged"}}`
	for _, c := range []struct {
		status int
		body   string
		ends   bool
	}{
		{http.StatusMovedPermanently, "", true},
		{http.StatusUnauthorized, "", true},
		{http.StatusNotFound, "", true},
		{http.StatusRequestTimeout, "", false},
		{http.StatusConflict, damaged, true},
		{http.StatusTooEarly, "", false},
		{http.StatusTooManyRequests, "", false},
		{http.StatusInternalServerError, "", false},
		{http.StatusInternalServerError, damaged, true},
		{http.StatusNotImplemented, "", true},
		{http.StatusBadGateway, "", false},
		{http.StatusServiceUnavailable, "", false},
		{http.StatusServiceUnavailable, damaged, true},
	} {
		s, to := play(t, answers(c.status, c.body), holds(event(1)))
		seqs, err := follow(t, to, client.FollowOptions{}, 1)
		if ended := !errors.Is(err, errEnough); ended != c.ends || ended && len(s.requests()) != 1 {
			t.Errorf("%d %s: %d requests, events %v: %v", c.status, c.body, len(s.requests()), seqs, err)
		}
	}
}

func TestAnErrorInAStreamKeepsItsCode(t *testing.T) {
	for code, want := range map[string]struct {
		err  error
		ends bool
	}{
		"not_found": {dormouse.ErrNotFound, true}, "damaged": {dormouse.ErrDamaged, true}, "invalid": {dormouse.ErrInvalid, true},
		"lease_lost": {dormouse.ErrLeaseLost, false}, "unavailable": {dormouse.ErrUnavailable, false},
	} {
		acts := []http.HandlerFunc{streams(event(1) + "event: error\ndata: {\"cursor\":1,\"type\":\"" + code + "\",\"message\":\"too bad\"}\n\n"), holds(event(2))}
		_, c := play(t, acts...)
		if _, err := follow(t, c, client.FollowOptions{Once: true}, 9); !errors.Is(err, want.err) || !strings.Contains(err.Error(), "too bad") {
			t.Errorf("%s: one connection ended with %v", code, err)
		}
		_, c = play(t, acts...)
		if _, err := follow(t, c, client.FollowOptions{}, 2); errors.Is(err, errEnough) == want.ends || want.ends && !errors.Is(err, want.err) {
			t.Errorf("%s: the follower ended with %v", code, err)
		}
	}
}

func TestAConsumerMayBeSlowerThanSilence(t *testing.T) {
	const silence = 300 * time.Millisecond
	padded := func(seq uint64) string { // too large for two to wait in one buffer
		return strings.Replace(event(seq), "true", `"`+strings.Repeat("x", 100<<10)+`"`, 1)
	}
	_, c := play(t, holds(padded(1)+padded(2)+padded(3)))
	var seqs []uint64
	for e, err := range c.Follow(t.Context(), id, client.FollowOptions{Once: true, Silence: silence}) {
		if err != nil {
			t.Fatalf("after %v: %v", seqs, err)
		}
		if seqs = append(seqs, e.Seq); len(seqs) == 3 {
			break
		}
		time.Sleep(2 * silence)
	}
}

// trip answers requests without a network.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAFollowerWaitsAsLongAsItIsAsked(t *testing.T) {
	for _, c := range []struct {
		status   int
		header   string
		from, to time.Duration
	}{
		{http.StatusTooManyRequests, "20", 20 * time.Second, 20 * time.Second},
		{http.StatusRequestTimeout, "20", 20 * time.Second, 20 * time.Second},
		{http.StatusServiceUnavailable, "20", 20 * time.Second, 20 * time.Second},
		{http.StatusTooManyRequests, "Sat, 01 Jan 2000 00:00:40 GMT", 39 * time.Second, 40 * time.Second}, // the clock of synctest begins in 2000
		{http.StatusTooManyRequests, "86400", time.Minute, 10 * time.Minute},
		{http.StatusTooManyRequests, "0", time.Millisecond, time.Second},
		{http.StatusTooManyRequests, "-5", time.Millisecond, time.Second},
		{http.StatusTooManyRequests, "soon", time.Millisecond, time.Second},
		{http.StatusTooManyRequests, "", time.Millisecond, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, requests := time.Now(), 0
			to, err := client.New(client.Options{URL: "http://nowhere.example", HTTP: &http.Client{Transport: trip(func(*http.Request) (*http.Response, error) {
				if requests++; requests == 1 {
					return &http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {c.header}}, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(event(1)))}, nil
			})}})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range to.Follow(t.Context(), id, client.FollowOptions{}) {
				if took := time.Since(began); err != nil || took < c.from || took > c.to {
					t.Errorf("%d, Retry-After %q: after %s: %v", c.status, c.header, took, err)
				}
				break
			}
		})
	}
}

// Each refusal that asks for no certain time doubles the wait.
func TestAFollowerThatIsThrottledBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		to, err := client.New(client.Options{URL: "http://nowhere.example", HTTP: &http.Client{Transport: trip(func(*http.Request) (*http.Response, error) {
			requests++
			return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("the play is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
		defer cancel()
		for _, err := range to.Follow(ctx, id, client.FollowOptions{}) {
			if !errors.Is(err, why) {
				t.Errorf("it ended with %v", err)
			}
		}
		if requests < 20 || requests > 30 {
			t.Errorf("%d requests in a minute", requests)
		}
	})
}

func TestAnErrorOfACommandKeepsItsCode(t *testing.T) {
	_, c := play(t, answers(http.StatusOK, `{"text":"one\n"}`+"\n"+`{"error":"cut off: server is shutting down","type":"closing"}`+"\n"))
	if _, err := c.Exec(t.Context(), id, client.ExecOptions{Command: "x"}, nil); !errors.Is(err, dormouse.ErrClosing) || !strings.Contains(err.Error(), "cut off: server is shutting down") {
		t.Errorf("%v", err)
	}
	_, c = play(t, answers(http.StatusOK, `{"error":"cut off: no idea"}`+"\n"))
	if _, err := c.Exec(t.Context(), id, client.ExecOptions{Command: "x"}, nil); err == nil || err.Error() != "cut off: no idea" {
		t.Errorf("without a code: %v", err)
	}
}
