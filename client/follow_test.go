package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/internal/sse"
)

func TestAFollowerGoesOnWhereItWasCutOff(t *testing.T) {
	whole := event(3)
	for name, first := range map[string]string{
		"between frames":        event(1) + event(2),
		"inside a frame":        event(1) + event(2) + whole[:len(whole)/2],
		"before the empty line": event(1) + event(2) + whole[:len(whole)-1],
		"by a server that goes": event(1) + event(2) + "event: closing\ndata: {\"cursor\":2}\n\n",
		"by falling behind":     event(1) + event(2) + "event: behind\ndata: {\"cursor\":2}\n\n",
		"by an error":           event(1) + event(2) + "event: error\ndata: {\"cursor\":2,\"message\":\"x\"}\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := play(t, streams(first), answers(http.StatusServiceUnavailable, "no"), streams(""), holds(event(3)+event(7)))
			seqs, err := follow(t, c, client.FollowOptions{}, 4)
			if !slices.Equal(seqs, []uint64{1, 2, 3, 7}) || !errors.Is(err, errEnough) {
				t.Errorf("it was given %v: %v", seqs, err)
			}
			var cursors []string
			for _, r := range s.requests() {
				if cursor := r.URL.Query().Get("after"); cursor == r.Header.Get("Last-Event-Id") && r.Header.Get("Authorization") == "Bearer secret" {
					cursors = append(cursors, cursor)
				}
			}
			if !slices.Equal(cursors, []string{"0", "2", "2", "2"}) {
				t.Errorf("it asked after %v", cursors)
			}
		})
	}
}

func TestNoEventIsGivenTwice(t *testing.T) {
	_, c := play(t, streams(event(4)+event(5)+event(5)+event(4)+event(6)), holds(event(5)+event(6)+event(8)))
	seqs, err := follow(t, c, client.FollowOptions{After: 4}, 3)
	if !slices.Equal(seqs, []uint64{5, 6, 8}) || !errors.Is(err, errEnough) {
		t.Errorf("it was given %v: %v", seqs, err)
	}
}

func TestAServerThatIsStartedElsewhereIsFound(t *testing.T) {
	second, _ := play(t, holds(event(2)))
	var at atomic.Pointer[stage]
	first, _ := play(t, func(w http.ResponseWriter, r *http.Request) {
		at.Store(second)
		streams(event(1))(w, r)
	})
	at.Store(first)
	c, err := client.New(client.Options{Locate: func(context.Context) (client.Server, error) {
		return client.Server{URL: at.Load().URL, Token: "secret"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	seqs, err := follow(t, c, client.FollowOptions{}, 2)
	if !slices.Equal(seqs, []uint64{1, 2}) || !errors.Is(err, errEnough) {
		t.Errorf("it was given %v: %v", seqs, err)
	}
}

func TestASilentConnectionIsBroken(t *testing.T) {
	_, c := play(t, holds(event(1)), holds(event(2)))
	seqs, err := follow(t, c, client.FollowOptions{Silence: 100 * time.Millisecond}, 2)
	if !slices.Equal(seqs, []uint64{1, 2}) || !errors.Is(err, errEnough) {
		t.Errorf("it was given %v: %v", seqs, err)
	}
	_, c = play(t, holds(event(1)))
	if _, err := follow(t, c, client.FollowOptions{Silence: 100 * time.Millisecond, Once: true}, 2); err == nil || !strings.Contains(err.Error(), "silent") {
		t.Errorf("it ended with %v", err)
	}
}

func TestAServerThatLivesIsHeard(t *testing.T) {
	const silence = 2 * time.Second
	_, c := play(t, func(w http.ResponseWriter, _ *http.Request) {
		for began := time.Now(); time.Since(began) < silence*3/2; time.Sleep(silence / 20) {
			say(w, ": alive\n\n")
		}
		say(w, event(1))
	}, answers(http.StatusNotFound, ""))
	seqs, err := follow(t, c, client.FollowOptions{Silence: silence}, 1)
	if !slices.Equal(seqs, []uint64{1}) || !errors.Is(err, errEnough) {
		t.Errorf("it was given %v: %v", seqs, err)
	}
}

func TestAFollowerThatIsRefusedEnds(t *testing.T) {
	_, c := play(t, streams(event(1)), answers(http.StatusNotFound, `{"error":{"type":"not_found","message":"session sesn_a: not found"}}`))
	seqs, err := follow(t, c, client.FollowOptions{}, 9)
	if !slices.Equal(seqs, []uint64{1}) || !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("it was given %v: %v", seqs, err)
	}
}

func TestOnceIsOneConnection(t *testing.T) {
	for text, want := range map[string]error{
		"event: behind\ndata: {}\n\n": dormouse.ErrBehind, "event: closing\ndata: {}\n\n": dormouse.ErrClosing, "id: 2": io.ErrUnexpectedEOF,
	} {
		s, c := play(t, streams(event(1)+text))
		seqs, err := follow(t, c, client.FollowOptions{Once: true}, 9)
		if !slices.Equal(seqs, []uint64{1}) || !errors.Is(err, want) || len(s.requests()) != 1 {
			t.Errorf("%q: it was given %v: %v", text, seqs, err)
		}
	}
}

func TestWhatCannotBeUnderstoodEndsIt(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":                  "id: 2\nevent: user.message\ndata: {\n\n",
		"another id":               strings.Replace(event(2), "id: 2", "id: 3", 1),
		"no id":                    strings.Replace(event(2), "id: 2", "x: 2", 1),
		"another type":             strings.Replace(event(2), "event: user", "event: agent", 1),
		"no number":                strings.ReplaceAll(event(2), "2", "0"),
		"a delta that is no delta": "event: delta\ndata: 7\n\n",
	} {
		s, c := play(t, streams(event(1)+text))
		seqs, err := follow(t, c, client.FollowOptions{}, 9)
		if !slices.Equal(seqs, []uint64{1}) || err == nil || !strings.Contains(err.Error(), "understand event") || len(s.requests()) != 1 {
			t.Errorf("%s: it was given %v: %v", name, seqs, err)
		}
	}
}

func TestAnEventThatIsTooLongEndsIt(t *testing.T) {
	s, c := play(t, func(w http.ResponseWriter, _ *http.Request) {
		say(w, event(1)+"id: 2\nevent: user.message\ndata: ")
		for line := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	seqs, err := follow(t, c, client.FollowOptions{}, 9)
	if !slices.Equal(seqs, []uint64{1}) || !errors.Is(err, sse.ErrTooLong) || len(s.requests()) != 1 {
		t.Errorf("it was given %v: %v", seqs, err)
	}
}

func TestDeltasComeAsTheyAre(t *testing.T) {
	s, c := play(t, holds("event: delta\ndata: {\"op\":\"op_a\",\"text\":\"hel\",\"mystery\":1}\n\n"+event(1)))
	for e, err := range c.Follow(t.Context(), id, client.FollowOptions{Deltas: true, All: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Delta != nil {
			if e.Delta.Op != "op_a" || e.Delta.Text != "hel" || e.Seq != 0 || !bytes.Contains(e.Raw, []byte("mystery")) {
				t.Errorf("the delta is %+v %s", e.Delta, e.Raw)
			}
			continue
		}
		if e.Type != dormouse.UserMessage || !bytes.Contains(e.Raw, []byte("mystery")) {
			t.Errorf("the event is %+v", e)
		}
		break
	}
	if q := s.requests()[0].URL.Query(); q.Get("deltas") != "true" || q.Get("all") != "true" || q.Get("follow") != "true" {
		t.Errorf("it asked for %v", q)
	}
}

func TestAFollowerEndsWithItsContext(t *testing.T) {
	for name, act := range map[string]http.HandlerFunc{"while it waits": holds(""), "between connections": answers(http.StatusInternalServerError, "")} {
		_, c := play(t, act)
		why := errors.New("the play is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 150*time.Millisecond, why)
		ends := 0
		for _, err := range c.Follow(ctx, id, client.FollowOptions{}) {
			if ends++; !errors.Is(err, why) {
				t.Errorf("%s: it ended with %v", name, err)
			}
		}
		if cancel(); ends != 1 {
			t.Errorf("%s: it ended %d times", name, ends)
		}
	}
}

// one answers everything with a stream.
type one []byte

func (o one) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(o))}, nil
}

// Whatever a server says, seqs only rise, and the end is an error.
func FuzzFollow(f *testing.F) {
	f.Add([]byte(event(1) + event(2) + event(2) + ": alive\n\nevent: delta\ndata: {\"text\":\"a\"}\n\nevent: closing\ndata: {}\n\n"))
	f.Add([]byte("id: 3\nevent: a\ndata: {\"seq\":3,\ndata: \"type\":\"a\"}\n\nid: -1\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c, err := client.New(client.Options{URL: "http://nowhere.example", HTTP: &http.Client{Transport: one(stream)}})
		if err != nil {
			t.Fatal(err)
		}
		var last uint64
		ended := false
		for e, err := range c.Follow(t.Context(), id, client.FollowOptions{Once: true, Deltas: true}) {
			switch {
			case ended:
				t.Fatal("it goes on after its end")
			case err != nil:
				ended = true
			case e.Delta == nil && e.Seq <= last:
				t.Fatalf("%d came after %d", e.Seq, last)
			case e.Delta == nil:
				last = e.Seq
			}
		}
		if !ended {
			t.Fatal("it has no end")
		}
	})
}
