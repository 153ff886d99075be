package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/fleet"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestASessionOfADeadServerIsTakenOverAndItsCommandIsNotRepeated(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("effect a; sleep 1m; effect b"))
		settle(10 * time.Second)
		a.kill()
		settle(lease + lease/6 + time.Second)
		b.on(a)
		if b.live.Loaded() != 1 {
			t.Errorf("%d sessions loaded a moment after the lease ran out", b.live.Loaded())
		}
		settle(2 * time.Minute)
		if f.boxes.effect("a") != 1 || f.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", f.boxes.effect("a"), f.boxes.effect("b"))
		}
		if n := countType(b.checked(), dormouse.SessionStatusRescheduled); n != 1 {
			t.Errorf("%d reschedules", n)
		}
		if c := b.live.Counts(); c.Taken == 0 {
			t.Errorf("counted %+v", c)
		}
	})
}

func TestAServerWithoutItsStoreStopsBeforeItsLeaseEndsAndComesBackAsAnother(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		a := f.servers[0]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("effect a; sleep 1m; effect b"))
		settle(10 * time.Second)
		before, _ := a.live.Self()
		written := a.view.written.Load()
		a.view.cut()
		settle(lease * 3 / 4)
		if n := a.live.Loaded(); n != 0 {
			t.Errorf("%d actors outlive the time they could rely on", n)
		}
		if _, ok := a.live.Self(); ok {
			t.Error("it still says who it is")
		}
		if _, err := a.live.FleetNow(); !errors.Is(err, dormouse.ErrLeaseLost) {
			t.Errorf("it still vouches for the time: %v", err)
		}
		settle(time.Minute)
		a.view.giveBack()
		settle(2 * lease)
		if now, err := a.live.FleetNow(); err != nil || !now.Equal(a.view.Now()) {
			t.Errorf("it is %v by the store's clock, %v", now, err)
		}
		after, ok := a.live.Self()
		if !ok || after.Incarnation == before.Incarnation {
			t.Errorf("came back as %v, was %v", after, before)
		}
		if n := a.view.written.Load(); n == written {
			t.Error("the session was not taken up again")
		}
		settle(2 * time.Minute)
		if f.boxes.effect("a") != 1 || f.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", f.boxes.effect("a"), f.boxes.effect("b"))
		}
		events := a.checked()
		if n := countType(events, dormouse.SessionStatusRescheduled); n != 1 {
			t.Errorf("%d reschedules: the attempt that was stopped is one, and is not given back", n)
		}
		if c := a.live.Counts(); c.Lost != 1 {
			t.Errorf("counted %+v", c)
		}
	})
}

func TestWhatAServerWritesTooLateIsRefusedAndCounted(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("effect a; sleep 3s; effect b"))
		settle(time.Second)
		a.view.cut()
		settle(2*time.Second - lease/6) // the command ends, and its end is on its way to the store
		late := make(chan error, 1)
		go func() { late <- a.prompt("late", "too late") }()
		settle(10 * time.Second)
		b.on(a)
		if f.boxes.effect("b") != 1 || b.live.Loaded() != 1 {
			t.Fatalf("not taken over: %d effects, %d loaded", f.boxes.effect("b"), b.live.Loaded())
		}
		a.view.giveBack()
		if err := <-late; err != nil {
			t.Errorf("the prompt that came too late was lost: %v", err)
		}
		settle(time.Minute)
		if c := a.live.Counts(); c.Stale == 0 || c.Lost != 1 {
			t.Errorf("counted %+v", c)
		}
		events := b.checked()
		if n := countType(events, dormouse.UserMessage); n != 2 {
			t.Errorf("%d messages", n)
		}
		if f.boxes.effect("a") != 1 || f.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", f.boxes.effect("a"), f.boxes.effect("b"))
		}
	})
}

// No other server takes the session over here, so the database accepts what
// arrives late: only the server itself can know that it may not act on it.
func TestAnOpThatWasRecordedTooLateIsNotSentByWhoRecordedIt(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		a := f.servers[0]
		a.create(dormouse.Created{Warm: true})
		settle(time.Second)
		a.mustPrompt("p", `SCRIPT[{"text":"thinking","tool":"bash","input":{"command":"effect a"},"delay_ms":1000},{"text":"done"}]`)
		settle(900 * time.Millisecond)
		a.view.cut() // the reply is recorded together with the op that follows from it
		settle(time.Minute)
		if n := f.boxes.effect("a"); n != 0 {
			t.Errorf("%d effects of an op that is not recorded", n)
		}
		a.view.giveBack()
		if n := f.boxes.effect("a"); n != 0 {
			t.Errorf("%d effects under a lease that is over", n)
		}
		settle(time.Minute)
		if n := f.boxes.effect("a"); n != 1 {
			t.Errorf("%d effects", n)
		}
		a.checked()
	})
}

func TestACleanStopFreesSessionsAtOnce(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", script("effect a; sleep 1m; effect b"))
		settle(10 * time.Second)
		start := time.Now()
		a.close()
		b.on(a).mustPrompt("q", "hello")
		if took := time.Since(start); took > time.Second {
			t.Errorf("the next server had to wait %v", took)
		}
		settle(2 * time.Minute)
		events := b.checked()
		if n := countType(events, dormouse.SessionStatusRescheduled); n != 0 {
			t.Errorf("%d reschedules after a clean stop", n)
		}
		if f.boxes.effect("a") != 1 || f.boxes.effect("b") != 1 {
			t.Errorf("effects a=%d b=%d", f.boxes.effect("a"), f.boxes.effect("b"))
		}
	})
}

func TestAnIdleSessionIsGivenUpAndAnyServerLoadsItNext(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", "hello")
		settle(2 * time.Minute)
		if n := a.live.Loaded(); n != 0 {
			t.Fatalf("%d loaded", n)
		}
		b.on(a).mustPrompt("q", "hello")
		settle(time.Second)
		if a.live.Loaded() != 0 || b.live.Loaded() != 1 {
			t.Errorf("%d and %d loaded", a.live.Loaded(), b.live.Loaded())
		}
		if c := b.live.Counts(); c.Forwarded != 0 {
			t.Errorf("counted %+v", c)
		}
	})
}

func TestServersShareWhatADeadOneLeft(t *testing.T) {
	const many = 200
	together(t, 3, func(t *testing.T, f *cluster) {
		a := f.servers[0]
		for i := range many {
			a.create(dormouse.Created{})
			a.mustPrompt(fmt.Sprint("p", i), script("sleep 1h"))
		}
		settle(time.Minute)
		a.kill()
		settle(10 * time.Second)
		b, c := f.servers[1].live.Loaded(), f.servers[2].live.Loaded()
		if b+c != many || min(b, c) < many/10 {
			t.Errorf("%d and %d of %d", b, c, many)
		}
	})
}

func TestASessionStaysWithNobodyWhoDoesNotKnow(t *testing.T) {
	t.Run("a take whose answer was lost", func(t *testing.T) {
		together(t, 1, func(t *testing.T, f *cluster) {
			a := f.servers[0]
			a.create(dormouse.Created{})
			a.mustPrompt("p", script("sleep 20s; effect a"))
			settle(time.Second)
			b := f.join().on(a)
			a.kill()
			b.view.lose.Store(1)
			settle(time.Minute)
			if n := f.boxes.effect("a"); n != 1 {
				t.Errorf("%d effects", n)
			}
			if n := b.view.lose.Load(); n > 0 {
				t.Error("no answer was lost")
			}
		})
	})
	t.Run("a release that did not arrive", func(t *testing.T) {
		together(t, 2, func(t *testing.T, f *cluster) {
			a, b := f.servers[0], f.servers[1]
			a.create(dormouse.Created{})
			if err := a.do(law.Schedule{
				ID: dormouse.WakeupID(session.NewID(dormouse.WakeupPrefix)), At: time.Now().Add(3 * time.Minute), Content: []dormouse.Block{dormouse.Text("hello")},
			}); err != nil {
				t.Fatal(err)
			}
			a.view.lose.Store(1)
			settle(2 * time.Minute)
			if a.view.lose.Load() > 0 || a.live.Loaded() > 0 {
				t.Fatal("the session was not given up")
			}
			settle(5 * time.Minute)
			if n := countType(b.on(a).checked(), dormouse.UserMessage); n != 1 {
				t.Errorf("%d messages: nobody was there when the time came", n)
			}
		})
	})
}

func TestBetweenTwoLeasesClientsAreToldSoon(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		a := f.servers[0]
		a.create(dormouse.Created{})
		settle(time.Second)
		a.view.cut()
		settle(10 * time.Second)
		for name, ask := range map[string]func() error{
			"a command":  func() error { return a.prompt("p", "hello") },
			"a follower": func() error { _, err := a.live.Follow(t.Context(), a.id, 0); return err },
		} {
			start := time.Now()
			if err := ask(); !errors.Is(err, dormouse.ErrLeaseLost) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(start); took > 2*lease {
				t.Errorf("%s: told after %v", name, took)
			}
		}
		waiting := make(chan error, 1)
		go func() { waiting <- a.prompt("q", "hello") }()
		settle(time.Second)
		a.view.giveBack()
		if err := <-waiting; err != nil {
			t.Errorf("who waited for the next lease: %v", err)
		}
	})
}

// A server that was paused and comes back has its next lease in a moment.
func TestWhoAsksAServerAtTheMomentItsLeaseIsLostIsServed(t *testing.T) {
	together(t, 2, func(t *testing.T, f *cluster) {
		a, b := f.servers[0], f.servers[1]
		a.create(dormouse.Created{})
		a.mustPrompt("p", "hello")
		b.on(a).mustPrompt("q", "hello") // it knows now which server has the session
		settle(time.Second)
		b.view.cut()
		time.Sleep(lease*3/4 - time.Millisecond)
		served := make(chan error, 10)
		for i := range cap(served) {
			go func() { served <- b.prompt(fmt.Sprint("r", i), "hello") }()
			time.Sleep(time.Millisecond / 2)
		}
		b.view.giveBack()
		for range cap(served) {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		settle(time.Minute)
		if c := b.live.Counts(); c.Lost != 1 {
			t.Errorf("counted %+v", c)
		}
		if n := countType(a.checked(), dormouse.UserMessage); n != 12 {
			t.Errorf("%d messages", n)
		}
	})
}

func TestASharedStoreNeedsAWayToTheOthers(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		_, err := session.New(session.Config{Store: f.store.Server(), Blobs: f.blobs, Driver: f.boxes, Lease: lease})
		if err == nil {
			t.Error("it was taken")
		}
	})
}

func TestAServerAtAnotherPlaceIsRefused(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		s, err := session.New(session.Config{
			Store: f.store.Server(), Blobs: f.blobs, Driver: f.boxes, Lease: lease, Peers: f, Server: fleet.Server{Place: "elsewhere"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Join(t.Context()); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("got %v", err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestAClockThatWasSetBackKeepsNoActorLoaded(t *testing.T) {
	live(t, func(t *testing.T, h *house) {
		h.create(dormouse.Created{})
		h.mustPrompt("p", "hello")
		settle(time.Second)
		h.skew.Store(int64(-24 * time.Hour))
		settle(time.Minute)
		if n := h.live.Loaded(); n != 0 {
			t.Errorf("%d loaded", n)
		}
	})
}

// A clock that is set is noticed within seconds, however long an actor meant to
// wait.
func TestAnActorNoticesThatTheClockWasSet(t *testing.T) {
	for name, set := range map[string]time.Duration{"an hour on": time.Hour, "a day on": 24 * time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			live(t, func(t *testing.T, h *house) {
				h.create(dormouse.Created{Warm: true, SleepAfter: time.Minute})
				settle(time.Second)
				h.mustPrompt("p", script("effect a"))
				settle(time.Second)
				h.skew.Store(int64(set))
				settle(6 * time.Second)
				asleep := h.phase() == dormouse.PhaseHibernated
				if want := set > 0; asleep != want {
					t.Errorf("asleep: %v", asleep)
				}
				h.mustPrompt("q", "hello")
				settle(time.Second)
				if n := countType(h.checked(), dormouse.UserMessage); n != 2 {
					t.Errorf("%d messages", n)
				}
			})
		})
	}
}
