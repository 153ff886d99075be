package rest_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// BenchmarkFollowers measures what one busy session delivers to a hundred
// followers over real connections, the cost of reading included.
func BenchmarkFollowers(b *testing.B) {
	h := newServer(b)
	path := h.create(`{"warm":false,"prompt":"SCRIPT[{\"hang\":true}]"}`)
	id := dormouse.SessionID(strings.TrimPrefix(path, "/api/sessions/"))
	const followers, writers = 100, 16
	var delivered atomic.Int64
	var reading, writing sync.WaitGroup
	for range followers {
		res, err := h.http.Do(h.request(http.MethodGet, path+"/events?follow=true&all=true", nil))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { res.Body.Close(); reading.Wait() })
		reading.Go(func() { count(res.Body, &delivered) })
	}
	time.Sleep(100 * time.Millisecond) // all of them are live
	before, err := h.sessions.Row(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	delivered.Store(0)
	b.ResetTimer()
	start := time.Now()
	for w := range writers {
		writing.Go(func() {
			for i := w; i < b.N; i += writers {
				p := law.Prompt{
					ID:   dormouse.EventID(session.NewID(dormouse.EventPrefix)),
					Body: "sha256:0", Content: []dormouse.Block{dormouse.Text("hello")},
				}
				for _, v := range []law.Verb{p, law.Cancel{Prompt: p.ID}} {
					if err := h.sessions.Do(b.Context(), id, "user:bench", v); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	writing.Wait()
	after, err := h.sessions.Row(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	want := int64(after.Seq-before.Seq) * followers
	for delivered.Load() < want && time.Since(start) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(delivered.Load())/time.Since(start).Seconds(), "deliveries/s")
	if delivered.Load() < want {
		b.Errorf("%d of %d were delivered", delivered.Load(), want)
	}
}

func count(r io.Reader, events *atomic.Int64) {
	buffer := make([]byte, 256<<10)
	for {
		n, err := r.Read(buffer)
		if err != nil {
			return
		}
		// Fields are written whole more often than not; what is cut in two is
		// counted by its other half.
		events.Add(int64(bytes.Count(buffer[:n], []byte("\n\n"))))
	}
}
