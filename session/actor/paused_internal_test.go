package actor

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/snapshot"
)

// counting counts what is done to sandboxes.
type counting struct {
	sandbox.Driver
	removed int
}

func (d *counting) Remove(context.Context, runner.Fence) error { d.removed++; return nil }

func (*counting) Snapshot(context.Context, sandbox.SnapshotRequest) (sandbox.SnapshotResult, error) {
	panic("a workspace was captured")
}

// lostLease is the lease of a server that was paused for longer than it lasted.
type lostLease struct{ context.Context } //nolint:containedctx // the life of the test

func (lostLease) Holds() error              { return dormouse.ErrLeaseLost }
func (l lostLease) Writes() context.Context { return l }
func (lostLease) CountStale()               {}

// paused is an actor of a server that was paused for longer than its lease and goes on,
// before any timer has told it so.
func paused(t *testing.T) (*Actor, *counting) {
	t.Helper()
	driver := new(counting)
	deps := &Config{Driver: driver, Snapshots: new(snapshot.Store), Logger: slog.New(slog.DiscardHandler)}
	return New("sesn_paused", deps, lostLease{t.Context()}), driver
}

// does has an actor do what it is told next, and returns what came of that.
func (a *Actor) does(t *testing.T) error {
	t.Helper()
	m := <-a.inbox
	err := m.act(t.Context())
	m.reply <- err
	return err
}

func TestWhoWasPausedWhileItSentActsNoMore(t *testing.T) {
	a, _ := paused(t)
	j := &journal{a: a}
	sent := make(chan error, 1)
	go func() {
		sent <- j.send(t.Context(), message{act: func(context.Context) error { return nil }})
	}()
	if err := a.does(t); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; !errors.Is(err, dormouse.ErrLeaseLost) {
		t.Errorf("told to go on with what was decided under a lease that is over: %v", err)
	}
}

func TestWhoWasPausedBeforeItWorksOnASandboxLeavesItAlone(t *testing.T) {
	t.Run("work", func(t *testing.T) {
		a, _ := paused(t)
		worked := false
		a.work(t.Context(), time.Minute, func(context.Context) func(context.Context) error {
			worked = true
			return func(context.Context) error { return nil }
		})
		if err := a.does(t); !errors.Is(err, dormouse.ErrLeaseLost) || worked {
			t.Errorf("worked %v, %v", worked, err)
		}
		a.running.Wait()
	})
	t.Run("capture", func(t *testing.T) {
		a, _ := paused(t)
		if err := a.reconcileSnapshot(t.Context(), law.Wanted{Snapshot: &law.WantedSnapshot{ID: "snap_late"}}); err != nil {
			t.Fatal(err)
		}
		m := <-a.inbox // no goroutine waits for its answer: nothing is recorded any more
		m.reply <- nil
		a.running.Wait()
	})
	t.Run("remove", func(t *testing.T) {
		a, driver := paused(t)
		if err := a.remove(t.Context()); !errors.Is(err, dormouse.ErrLeaseLost) || driver.removed != 0 {
			t.Errorf("removed %d times, %v", driver.removed, err)
		}
	})
}
