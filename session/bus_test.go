package session_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestWhoAttendsHearsWhatBecameOfASession(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		var heard, ended []session.SignalType
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{}, 2)
		go func() {
			h.live.Attend(ctx, func(s session.Signal) { heard = append(heard, s.Type) })
			done <- struct{}{}
		}()
		go func() {
			h.live.Attend(ctx, func(s session.Signal) { ended = append(ended, s.Type) }, session.SignalTerminated)
			done <- struct{}{}
		}()
		synctest.Wait()
		h.create(dormouse.Created{Agent: everyTool()})
		h.mustPrompt("p", script("effect a"))
		settle(time.Second)
		h.mustPrompt("q", says(use("question_ask", map[string]any{"question": "which?"})))
		settle(time.Hour)
		h.mustPrompt("r", `SCRIPT[{"error":400}]`)
		settle(time.Minute)
		if err := h.do(law.Archive{}); err != nil {
			t.Fatal(err)
		}
		if err := h.do(law.Delete{}); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		stop()
		<-done
		<-done
		if diff := cmp.Diff([]session.SignalType{
			session.SignalCreated, session.SignalCompleted, session.SignalWaiting, session.SignalCompleted, session.SignalFailed,
			session.SignalTerminated, session.SignalArchived, session.SignalDeleted,
		}, heard); diff != "" {
			t.Error(diff)
		}
		if !slices.Equal(ended, []session.SignalType{session.SignalTerminated}) {
			t.Errorf("who asked for the end only heard %v", ended)
		}
	})
}

func TestWhoIsTooSlowIsToldSoAndHoldsNobodyUp(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var heard []session.SignalType
		free := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.live.Attend(ctx, func(s session.Signal) {
				<-free
				heard = append(heard, s.Type)
			}, session.SignalCreated)
		}()
		synctest.Wait()
		h.create(dormouse.Created{})
		synctest.Wait() // it is at the first, and takes no more for now
		for range 1100 {
			h.create(dormouse.Created{})
		}
		close(free)
		settle(time.Second)
		stop()
		<-done
		if len(heard) >= 1100 || !slices.Contains(heard, session.SignalMissed) {
			t.Errorf("heard %d signals, missed told: %v", len(heard), slices.Contains(heard, session.SignalMissed))
		}
	})
}
