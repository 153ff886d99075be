package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/session/law"
)

// sleeping is a driver whose sandboxes are frozen, and taken along by branches.
type sleeping struct {
	*snapshotDriver
	copied map[dormouse.SessionID]string // which sleep a branch begins with
	fails  error                         // what every copy fails with
	ready  chan struct{}                 // closed once what plays the runner says that it can be frozen; nil if it says so at once
	given  int                           // how many times freezing was given up
}

var (
	_ sandbox.Brancher = (*sleeping)(nil)
	_ sandbox.Freezer  = (*sleeping)(nil)
)

func (d *sleeping) Freeze(ctx context.Context, h sandbox.Handle, f runner.Fence) error {
	if d.ready != nil {
		select {
		case <-d.ready:
		case <-ctx.Done():
			d.given++
			return context.Cause(ctx)
		}
	}
	return d.Stop(ctx, h, f)
}

func (d *sleeping) Branch(_ context.Context, from dormouse.SessionID, generation uint64, to dormouse.SessionID) error {
	if d.fails == nil {
		d.copied[to] = fmt.Sprint(from, " ", generation)
	}
	return d.fails
}

func (d *sleeping) Remove(ctx context.Context, f runner.Fence) error {
	delete(d.copied, f.Session)
	return d.snapshotDriver.Remove(ctx, f)
}

func asleep(t *testing.T, f func(t *testing.T, h *house, d *sleeping)) {
	live(t, func(t *testing.T, h *house) { f(t, h, h.kind.(*sleeping)) }, storesSnapshots, func(h *house) {
		h.kind = &sleeping{snapshotDriver: h.kind.(*snapshotDriver), copied: make(map[dormouse.SessionID]string)}
	})
}

var (
	yes = true
	no  = false
)

func TestABranchTakesAlongWhatRuns(t *testing.T) {
	asleep(t, func(t *testing.T, h *house, d *sleeping) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		d.write("a", "good")
		branch := func(ask session.BranchAsk) (session.Branched, error) {
			return h.live.Branch(t.Context(), h.id, dormouse.User("ada"), ask)
		}
		if b, err := branch(session.BranchAsk{}); err != nil || b.Processes || len(d.copied) != 0 {
			t.Fatalf("of a session that is awake: %+v, %v", b, err)
		}
		if _, err := branch(session.BranchAsk{Snapshot: h.state().Snapshots[0].ID, Processes: &yes}); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("of a snapshot: %v", err)
		}
		first, err := branch(session.BranchAsk{Processes: &yes})
		if err != nil || !first.Processes || d.copied[first.Session] != fmt.Sprint(h.id, " 1") {
			t.Fatalf("%+v, %v, copied %v", first, err, d.copied)
		}
		if h.state().Sandbox.Phase != law.SandboxCold {
			t.Error("the session is awake")
		}
		second, err := branch(session.BranchAsk{}) // it sleeps already
		if err != nil || !second.Processes {
			t.Fatalf("of a session that sleeps: %+v, %v", second, err)
		}
		if b, err := branch(session.BranchAsk{Processes: &no}); err != nil || b.Processes {
			t.Errorf("against its will: %+v, %v", b, err)
		}
		b := h.of(second.Session)
		delete(d.files, 1)
		b.mustPrompt("q1", script("effect z"))
		settle(time.Minute)
		i := slices.IndexFunc(d.specs, func(s sandbox.Spec) bool { return s.Fence.Session == second.Session })
		if i < 0 {
			t.Fatal("it has no sandbox")
		}
		if spec := d.specs[i]; spec.Fresh || !spec.Workspace.Sealed || spec.Workspace.Number != 1 || spec.Fence.Generation != 1 {
			t.Errorf("made as %+v", spec)
		}
		started := slices.IndexFunc(b.log(), func(e dormouse.Event) bool { return e.Type == dormouse.SandboxWarming })
		if started < 0 || facts(b.log()[started]).How != dormouse.WarmRestore {
			t.Error("nobody is told that it wakes")
		}
		b.checked()
		h.checked()
	})
}

func TestWhatCannotBeTakenAlongIsSaidOrLeft(t *testing.T) {
	asleep(t, func(t *testing.T, h *house, d *sleeping) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		d.write("a", "good")
		for _, why := range []error{sandbox.ErrNoMemoryImage, errors.New("the disk is full")} {
			d.fails = why
			_, err := h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{Processes: &yes})
			if nothing := errors.Is(why, sandbox.ErrNoMemoryImage); !errors.Is(err, why) || errors.Is(err, dormouse.ErrConflict) != nothing {
				t.Errorf("it was wanted, and %v is told as %v", why, err)
			}
			if b, err := h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{}); err != nil || b.Processes {
				t.Errorf("it was not wanted, and %v is told as %+v, %v", why, b, err)
			}
		}
		h.checked()
	})
}

func facts(e dormouse.Event) (f dormouse.SandboxFact) {
	_ = json.Unmarshal(e.Payload, &f)
	return f
}

// A branch that was never used is branched from: its files are there all the same.
func TestABranchOfASessionThatWasNeverAwakeHasItsFiles(t *testing.T) {
	withSnapshots(t, func(t *testing.T, h *house, d *snapshotDriver) {
		h.create(dormouse.Created{})
		h.mustPrompt("p1", script("effect x"))
		settle(time.Second)
		d.write("a", "good")
		first, err := h.live.Branch(t.Context(), h.id, dormouse.User("ada"), session.BranchAsk{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.live.Branch(t.Context(), first.Session, dormouse.User("ada"), session.BranchAsk{Processes: &yes}); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("with what runs, though nothing has: %v", err)
		}
		second, err := h.live.Branch(t.Context(), first.Session, dormouse.User("ada"), session.BranchAsk{})
		if err != nil {
			t.Fatal(err)
		}
		of := h.of(first.Session).state().Workspace
		if got := h.of(second.Session).state().Workspace; got.Number != 1 || len(got.Layers) == 0 || !slices.Equal(got.Layers, of.Layers) {
			t.Fatalf("it begins with %+v, of %+v", got, of)
		}
		for _, id := range []dormouse.SessionID{h.id, first.Session} { // as its parents go, it stays
			if err := h.of(id).do(law.Delete{}); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Minute)
		b := h.of(second.Session)
		delete(d.files, 1)
		b.mustPrompt("q1", script("effect z"))
		settle(time.Minute)
		if d.files[1]["a"] != "good" {
			t.Errorf("its files are %v", d.files[1])
		}
		b.checked()
	})
}
