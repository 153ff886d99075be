package sandboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

func createEndsStale(t *testing.T, w *world) {
	first := w.create(t, 1, 1)
	beating := w.beating("beats")
	start(t, first, beating)
	w.beats(t, first, "beats")
	second := w.create(t, 1, 2)
	isHere(t, second)
	if report, err := second.Ask(within(t), beating.Op); err != nil {
		t.Fatal(err)
	} else if report.State == runner.Running { // it was taken over
		if err := second.Kill(within(t), beating.Op); err != nil {
			t.Fatal(err)
		}
	} else {
		isGone(t, first)
	}
	w.idle(t, second, "beats*")
	if err := first.Start(within(t), w.exec("echo x >>late")); err == nil {
		t.Error("start by the server before succeeded")
	}
	if n := w.count(t, second, "late"); n != 0 {
		t.Error("start by the server before had an effect")
	}
}

func generationFindsFiles(t *testing.T, w *world) {
	first := w.create(t, 1, 1)
	w.sh(t, first, "mkdir -p a/b && echo kept >a/b/file && chmod 755 a/b/file && ln -s b a/link")
	if err := w.Driver.Stop(within(t), first.Handle(), Newest(first.Handle())); err != nil {
		t.Fatal(err)
	}
	second := w.create(t, 2, 1)
	if got := w.sh(t, second, "cat a/link/file; [ -x a/b/file ] && echo runs"); got != "kept\nruns" {
		t.Errorf("found %q", got)
	}
}

func attachIsCertain(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	start(t, s, w.beating("beats"))
	w.beats(t, s, "beats")

	thaw := w.Freeze(t, s.Handle())
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := w.Restart(t).Attach(short, s.Handle(), w.fence(1, 2)); err == nil || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("attach to a sandbox that is only slow: %v", err)
	}
	thaw()

	w.Kill(t, s.Handle())
	if _, err := w.Restart(t).Attach(within(t), s.Handle(), w.fence(1, 3)); !errors.Is(err, sandbox.ErrGone) {
		t.Fatalf("attach to a dead sandbox: %v", err)
	}
	w.idle(t, w.create(t, 2, 3), "beats*")
}

func attachReaches(t *testing.T, w *world) {
	first := w.create(t, 1, 1)
	w.sh(t, first, "echo mine >file")
	second := w.attach(t, w.Restart(t), first.Handle(), 1, 2)
	if got := w.sh(t, second, "cat file"); got != "mine" {
		t.Errorf("found %q", got)
	}
	if diff := cmp.Diff(string(first.Handle()), string(second.Handle())); diff != "" {
		t.Errorf("handle changed:\n%s", diff)
	}
	if len(first.Handle()) > 4096 {
		t.Errorf("handle has %d bytes, too many for a row", len(first.Handle()))
	}
	other := w.fence(2, 2)
	if _, err := w.Driver.Attach(within(t), first.Handle(), other); !errors.Is(err, runner.ErrForeign) {
		t.Errorf("attach as another generation: %v", err)
	}
}

func stopKeepsFiles(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	w.sh(t, s, "echo kept >file")
	start(t, s, w.beating("beats"))
	w.beats(t, s, "beats")
	if err := w.Restart(t).Stop(within(t), s.Handle(), Newest(s.Handle())); err != nil {
		t.Fatal(err)
	}
	isGone(t, s)
	if _, err := s.Ask(within(t), "op_1"); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("ask a stopped sandbox: %v", err)
	}
	next := w.create(t, 2, 1)
	w.idle(t, next, "beats*")
	if got := w.sh(t, next, "cat file"); got != "kept" {
		t.Errorf("found %q", got)
	}
}

func staleIsRefused(t *testing.T, w *world) {
	first := w.create(t, 1, 1)
	w.sh(t, first, "echo kept >file")
	late := w.Driver
	second := w.attach(t, w.Restart(t), first.Handle(), 1, 2)
	start(t, second, w.beating("beats"))
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, runner.ErrStale) {
			t.Errorf("%s by a server that was replaced: %v, want ErrStale", what, err)
		}
		w.beats(t, second, "beats")
	}
	refused("stop", late.Stop(within(t), first.Handle(), w.fence(1, 1)))
	refused("remove", late.Remove(within(t), w.fence(1, 1)))
	if f, ok := late.(sandbox.Freezer); ok {
		refused("freeze", f.Freeze(within(t), first.Handle(), w.fence(1, 1)))
	}
	if c, ok := late.(sandbox.Snapshotter); ok {
		_, err := c.Snapshot(within(t), sandbox.SnapshotRequest{Fence: w.fence(1, 1), Handle: first.Handle(), As: "snap_late", To: t.TempDir()})
		refused("snapshot", err)
	}
	if err := late.Stop(within(t), first.Handle(), w.fence(2, 2)); !errors.Is(err, runner.ErrForeign) {
		t.Errorf("stop as another generation: %v", err)
	}
	// A caller that knows only an earlier generation has no power over a later
	// one.
	if err := w.Driver.Stop(within(t), second.Handle(), w.fence(1, 2)); err != nil {
		t.Fatal(err)
	}
	third := w.create(t, 2, 2)
	_ = late.Stop(within(t), first.Handle(), w.fence(1, 1)) // there is nothing it could hit
	if err := late.Remove(within(t), w.fence(1, 1)); !errors.Is(err, runner.ErrStale) {
		t.Errorf("remove by who knows only the generation before: %v, want ErrStale", err)
	}
	if got := w.sh(t, third, "cat file"); got != "kept" {
		t.Errorf("found %q", got)
	}
}

func stopGone(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	w.Kill(t, s.Handle())
	for range 2 {
		if err := w.Driver.Stop(within(t), s.Handle(), Newest(s.Handle())); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.Driver.Attach(within(t), s.Handle(), w.fence(1, 2)); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("attach to a stopped sandbox: %v", err)
	}
}

func outlastsLoss(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	thaw := w.Freeze(t, s.Handle())
	c := w.exec("echo x >>acts; echo done")
	done := make(chan error, 1)
	go func() {
		err := s.Start(within(t), c)
		if err == nil {
			_, err = s.Wait(within(t), c.Op, nil)
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("answered by a runner that is frozen: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	thaw()
	if err := <-done; err != nil {
		t.Error(err)
	}
	isHere(t, s)
	if n := w.count(t, s, "acts"); n != 1 {
		t.Errorf("acted %d times", n)
	}
}
