package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

func startIsKnown(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.exec("while [ ! -e go ]; do sleep 0.02; done")
	start(t, s, c)
	// A server that comes now must find it, whatever became of the first.
	next := w.attach(t, w.Restart(t), s.Handle(), 1, 2)
	if rep, err := next.Ask(within(t), c.Op); err != nil || rep.State != runner.Running {
		t.Errorf("asked: %+v, %v", rep, err)
	}
	thaw := w.Freeze(t, s.Handle())
	defer thaw()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := next.Start(short, w.exec("true")); err == nil {
		t.Error("start succeeded though the runner cannot have it")
	}
}

func startActsOnce(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.exec("echo x >>acts")
	for range 3 {
		start(t, s, c)
	}
	wait(t, s, c.Op)
	next := w.attach(t, w.Restart(t), s.Handle(), 1, 2)
	start(t, next, c)
	wait(t, next, c.Op)
	if n := w.count(t, next, "acts"); n != 1 {
		t.Errorf("acted %d times", n)
	}
}

func startIsFenced(t *testing.T, w *world) {
	older := w.create(t, 1, 1)
	newer := w.attach(t, w.Restart(t), older.Handle(), 1, 2)
	if err := older.Start(within(t), w.exec("echo x >>late")); !errors.Is(err, runner.ErrStale) {
		t.Errorf("start under the older epoch: %v", err)
	}
	if _, err := w.Driver.Attach(within(t), newer.Handle(), w.fence(1, 1)); !errors.Is(err, runner.ErrStale) {
		t.Errorf("attach under the older epoch: %v", err)
	}
	if n := w.count(t, newer, "late"); n != 0 {
		t.Errorf("acted %d times", n)
	}
	w.idle(t, newer, "late")
}

func waitReturnsResult(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	for _, test := range []struct {
		name, command string
		want          runner.Result
	}{
		{"success", "echo out; echo err >&2", runner.Result{Output: []byte("out\nerr\n")}},
		{"failure", "exit 7", runner.Result{Exit: 7}},
		{"signal", "kill -KILL $$", runner.Result{Exit: 137}},
		{"no input", "cat", runner.Result{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := w.exec(test.command)
			start(t, s, c)
			for range 2 {
				if diff := cmp.Diff(test.want, wait(t, s, c.Op)); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
			}
		})
	}
	t.Run("never started", func(t *testing.T) {
		if _, err := s.Wait(within(t), w.op(), nil); !errors.Is(err, runner.ErrNeverSeen) {
			t.Errorf("waited: %v", err)
		}
	})
	t.Run("much output", func(t *testing.T) {
		res := do(t, s, w.exec("printf head; head -c 5000000 /dev/zero; printf tail"))
		if total := int64(len(res.Output)) + res.Omitted; total != 5000008 || res.Omitted == 0 {
			t.Errorf("kept %d and omitted %d", len(res.Output), res.Omitted)
		}
		if !bytes.HasPrefix(res.Output, []byte("head")) || !bytes.HasSuffix(res.Output, []byte("tail")) {
			t.Error("head or tail is missing")
		}
	})
}

func waitAfterRestart(t *testing.T, w *world) {
	first := w.create(t, 1, 1)
	over, running := w.exec("echo over"), w.exec("while [ ! -e go ]; do sleep 0.02; done; echo end")
	do(t, first, over)
	start(t, first, running)
	second := w.attach(t, w.Restart(t), first.Handle(), 1, 2)
	if res := wait(t, second, over.Op); string(res.Output) != "over\n" {
		t.Errorf("finished before: %+v", res)
	}
	w.sh(t, second, "touch go")
	if res := wait(t, second, running.Op); string(res.Output) != "end\n" {
		t.Errorf("running before: %+v", res)
	}
}

func waitShowsOutput(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.exec("until [ -e go ]; do echo tick; sleep 0.02; done; echo last")
	start(t, s, c)
	var seen bytes.Buffer
	var once sync.Once
	res, err := s.Wait(within(t), c.Op, func(b []byte) {
		seen.Write(b)
		once.Do(func() { w.sh(t, s, "touch go") }) // it ends only if it is seen running
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(res.Output, []byte("last\n")) || !bytes.Contains(res.Output, bytes.TrimSpace(seen.Bytes())) {
		t.Errorf("seen %q of %q", seen.Bytes(), res.Output)
	}
}

func askKnows(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	ask := func(op dormouse.OpID) runner.Report {
		rep, err := s.Ask(within(t), op)
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	c := w.exec("while [ ! -e go ]; do sleep 0.02; done; echo end")
	if rep := ask(c.Op); rep.State != runner.NeverSeen {
		t.Errorf("before: %+v", rep)
	}
	start(t, s, c)
	if rep := ask(c.Op); rep.State != runner.Running {
		t.Errorf("during: %+v", rep)
	}
	w.sh(t, s, "touch go")
	wait(t, s, c.Op)
	want := runner.Report{Op: c.Op, State: runner.Finished, Result: &runner.Result{Output: []byte("end\n")}}
	if diff := cmp.Diff(want, ask(c.Op)); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
}

func killEndsAll(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.beating("beats")
	start(t, s, c)
	w.beats(t, s, "beats")
	if err := s.Kill(within(t), c.Op); err != nil {
		t.Fatal(err)
	}
	w.idle(t, s, "beats*")
	if res := wait(t, s, c.Op); !res.Killed || res.Exit < 128 {
		t.Errorf("result: %+v", res)
	}
}

func killLeavesAlone(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.exec("echo done")
	want := do(t, s, c)
	if err := errors.Join(s.Kill(within(t), c.Op), s.Kill(within(t), w.op())); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, wait(t, s, c.Op)); diff != "" {
		t.Errorf("result changed:\n%s", diff)
	}
}

func forgotten(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.exec("echo x")
	do(t, s, c)
	for range 2 {
		s.Forget(c.Op)
	}
	if rep, err := s.Ask(within(t), c.Op); err != nil || rep.State != runner.NeverSeen {
		t.Errorf("asked: %+v, %v", rep, err)
	}
}

func goneIsCertain(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.beating("beats")
	start(t, s, c)
	w.beats(t, s, "beats")
	waited := make(chan error, 1)
	go func() { _, err := s.Wait(within(t), c.Op, nil); waited <- err }()
	isHere(t, s)
	w.Kill(t, s.Handle())
	isGone(t, s)
	if err := <-waited; !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a wait across the end: %v", err)
	}
	if err := s.Start(within(t), w.exec("true")); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("start after the end: %v", err)
	}
	w.idle(t, w.create(t, 2, 1), "beats*")
}

func closeDetaches(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.exec("while [ ! -e go ]; do sleep 0.02; done; echo end")
	start(t, s, c)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Ask(within(t), c.Op); err == nil {
		t.Error("a closed sandbox answers")
	}
	next := w.attach(t, w.Driver, s.Handle(), 1, 2)
	w.sh(t, next, "touch go")
	if res := wait(t, next, c.Op); string(res.Output) != "end\n" {
		t.Errorf("result: %+v", res)
	}
}

func manyAtOnce(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 5 {
				want := fmt.Sprintln(i, j)
				c := w.exec("echo " + want)
				if err := s.Start(within(t), c); err != nil {
					t.Error(err)
					return
				}
				res, err := s.Wait(within(t), c.Op, func([]byte) {})
				if err != nil || string(res.Output) != want {
					t.Errorf("%d/%d: %+v, %v", i, j, res, err)
				}
				s.Forget(c.Op)
			}
		})
	}
	all.Wait()
}

func respectsContext(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := w.exec("sleep 1000")
	start(t, s, c)
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if _, err := s.Wait(ctx, c.Op, nil); !errors.Is(err, why) {
		t.Errorf("wait: %v", err)
	}
	if rep, err := s.Ask(within(t), c.Op); err != nil || rep.State != runner.Running {
		t.Errorf("the op afterwards: %+v, %v", rep, err)
	}
	thaw := w.Freeze(t, s.Handle())
	defer thaw()
	for name, call := range map[string]func(context.Context) error{
		"start": func(ctx context.Context) error { return s.Start(ctx, w.exec("true")) },
		"ask":   func(ctx context.Context) error { _, err := s.Ask(ctx, c.Op); return err },
		"kill":  func(ctx context.Context) error { return s.Kill(ctx, c.Op) },
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
		if err := call(ctx); !errors.Is(err, why) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func noEnvironment(t *testing.T, w *world) {
	t.Setenv("DORMOUSE_TEST_SECRET", "hush")
	s := w.create(t, 1, 1)
	if out := w.sh(t, s, "env; cat /proc/$PPID/environ | tr '\\0' '\\n'"); strings.Contains(out, "hush") {
		t.Errorf("environment:\n%s", out)
	}
	if got := w.sh(t, s, `[ -d "$HOME" ] && [ -w "$HOME" ] && echo "$TERM"`); got != "dumb" {
		t.Errorf("home or terminal: %q", got)
	}
}

func timeoutEndsAll(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	// A machine that is too busy to start the child in time gets more of it.
	for timeout := time.Second; w.count(t, s, "beats.child") == 0; timeout *= 2 {
		if timeout > patience/2 {
			t.Fatal("the child never ran")
		}
		c := w.beating("beats")
		c.Exec.Timeout = timeout
		if res := do(t, s, c); !res.TimedOut || res.Exit < 128 {
			t.Errorf("result: %+v", res)
		}
	}
	w.idle(t, s, "beats*")
}

func taskLivesOn(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := runner.Call{Op: w.op(), Kind: dormouse.OpTask, Exec: &runner.Exec{Command: "echo started; while :; do echo x >>beats; sleep 0.02; done"}}
	res := do(t, s, c)
	if res.PID == 0 || res.Log == "" || res.Error != "" {
		t.Fatalf("result: %+v", res)
	}
	eventually(t, "the task acts", func() bool { return w.count(t, s, "beats") > 0 })
	if got := w.sh(t, s, "cat "+res.Log); got != "started" {
		t.Errorf("log: %q", got)
	}
	s.Forget(c.Op)
	before := w.count(t, s, "beats")
	eventually(t, "the task goes on", func() bool { return w.count(t, s, "beats") > before })
	if err := s.Kill(within(t), c.Op); err != nil {
		t.Fatal(err)
	}
	w.idle(t, s, "beats")
}
