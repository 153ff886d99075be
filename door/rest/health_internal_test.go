package rest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHoweverManyAskWhetherAServerIsReadyItLooksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r readiness
		looks := 0
		away := errors.New("the database is away")
		look := func(context.Context) error {
			looks++
			time.Sleep(100 * time.Millisecond)
			return away
		}
		began := time.Now()
		for range 50 { // clients without a token that ask again and again
			go func() {
				for time.Since(began) < 20*time.Second {
					if err := r.recent(t.Context(), look); !errors.Is(err, away) {
						t.Errorf("told %v", err)
					}
					time.Sleep(7 * time.Millisecond)
				}
			}()
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if looks < 15 || looks > 20 {
			t.Errorf("looked %d times in 20 seconds", looks)
		}
		// What is found holds no longer than that, either way.
		if err := r.recent(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("it is ready again, and told %v", err)
		}
		// A client that has disconnected says nothing about the server.
		time.Sleep(2 * time.Second)
		gone, cancel := context.WithCancel(t.Context())
		_ = r.recent(gone, func(context.Context) error { cancel(); return gone.Err() })
		if err := r.recent(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("others are told %v", err)
		}
	})
}
