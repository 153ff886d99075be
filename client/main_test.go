package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

const id = dormouse.SessionID("sesn_a")

// stage plays a server: each request is answered by the next of its acts, the last one
// again and again.
type stage struct {
	*httptest.Server
	mu    sync.Mutex
	acts  []http.HandlerFunc // guarded by mu
	asked []*http.Request    // guarded by mu; as they came
}

func play(t testing.TB, acts ...http.HandlerFunc) (*stage, *client.Client) {
	t.Helper()
	s := &stage{acts: acts}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL + "/", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	act := s.acts[0]
	if len(s.acts) > 1 {
		s.acts = s.acts[1:]
	}
	s.asked = append(s.asked, r)
	s.mu.Unlock()
	act(w, r)
}

func (s *stage) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// answers says something.
func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// streams says something and breaks the connection.
func streams(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		say(w, text)
		panic(http.ErrAbortHandler)
	}
}

// holds says something and then nothing, until the client leaves.
func holds(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		say(w, text)
		<-r.Context().Done()
	}
}

func say(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write([]byte(text))
	_ = http.NewResponseController(w).Flush()
}

// event is one as it is on the wire.
func event(seq uint64) string {
	return fmt.Sprintf("id: %d\nevent: user.message\ndata: {\"seq\":%d,\"type\":\"user.message\",\"mystery\":true}\n\n", seq, seq)
}

var errEnough = errors.New("enough")

// follow lists the seqs that a follower is given, n at most, and why it ended.
func follow(t testing.TB, c *client.Client, o client.FollowOptions, n int) (seqs []uint64, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for e, err := range c.Follow(ctx, id, o) {
		if err != nil {
			return seqs, err
		}
		if seqs = append(seqs, e.Seq); len(seqs) == n {
			return seqs, errEnough
		}
	}
	return seqs, nil
}
