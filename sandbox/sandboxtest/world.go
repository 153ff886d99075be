package sandboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// world is one session and the servers that serve it, one after another.
type world struct {
	Harness
	session dormouse.SessionID
	ops     atomic.Int64
}

const patience = 30 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) fence(generation, epoch uint64) runner.Fence {
	return runner.Fence{Session: w.session, Generation: generation, Epoch: epoch}
}

func (w *world) create(t *testing.T, generation, epoch uint64) sandbox.Sandbox {
	t.Helper()
	s, err := w.Driver.Create(within(t), sandbox.Spec{Fence: w.fence(generation, epoch)})
	if err != nil {
		t.Fatal(err)
	}
	w.cleanUp(t, s)
	return s
}

func (w *world) attach(t *testing.T, d sandbox.Driver, h sandbox.Handle, generation, epoch uint64) sandbox.Sandbox {
	t.Helper()
	s, err := d.Attach(within(t), h, w.fence(generation, epoch))
	if err != nil {
		t.Fatal(err)
	}
	w.cleanUp(t, s)
	return s
}

func (w *world) cleanUp(t *testing.T, s sandbox.Sandbox) {
	t.Cleanup(func() {
		_ = s.Close()
		if err := w.Driver.Stop(within(t), s.Handle(), Newest(s.Handle())); err != nil {
			t.Errorf("stop at the end: %v", err)
		}
	})
}

// op makes an op id that is unique on this machine: a driver may find the processes that it
// ends by it.
func (w *world) op() dormouse.OpID {
	return dormouse.OpID(fmt.Sprintf("op_%s_%d", w.session, w.ops.Add(1)))
}

func (w *world) exec(command string) runner.Call {
	return runner.Call{Op: w.op(), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command}}
}

// beating is a command that acts for ever, also in a child process that detaches.
func (w *world) beating(file string) runner.Call {
	return w.exec(fmt.Sprintf("(setsid sh -c 'while :; do echo x >>%[1]s.child; sleep 0.02; done' &); while :; do echo x >>%[1]s; sleep 0.02; done", file))
}

func start(t *testing.T, s sandbox.Sandbox, c runner.Call) {
	t.Helper()
	if err := s.Start(within(t), c); err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, s sandbox.Sandbox, op dormouse.OpID) runner.Result {
	t.Helper()
	res, err := s.Wait(within(t), op, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func do(t *testing.T, s sandbox.Sandbox, c runner.Call) runner.Result {
	t.Helper()
	start(t, s, c)
	return wait(t, s, c.Op)
}

// sh runs a command and returns what it printed.
func (w *world) sh(t *testing.T, s sandbox.Sandbox, command string) string {
	t.Helper()
	res := do(t, s, w.exec(command))
	if res.Exit != 0 || res.Error != "" {
		t.Fatalf("%s: exit %d, %s%s", command, res.Exit, res.Error, res.Output)
	}
	return strings.TrimSpace(string(res.Output))
}

func (w *world) count(t *testing.T, s sandbox.Sandbox, files string) int {
	t.Helper()
	n, err := strconv.Atoi(w.sh(t, s, "cat "+files+" 2>/dev/null | wc -l"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// beats waits until both processes of a beating command have acted.
func (w *world) beats(t *testing.T, s sandbox.Sandbox, file string) {
	t.Helper()
	eventually(t, "the command acts", func() bool { return w.count(t, s, file) > 0 && w.count(t, s, file+".child") > 0 })
}

// idle fails if anything appends to the files while it looks.
func (w *world) idle(t *testing.T, s sandbox.Sandbox, files string) {
	t.Helper()
	before := w.count(t, s, files)
	time.Sleep(150 * time.Millisecond)
	if after := w.count(t, s, files); after != before {
		t.Errorf("%s grew from %d to %d lines: something still acts", files, before, after)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func isGone(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	select {
	case <-s.Gone():
	case <-time.After(patience):
		t.Fatal("gone was not closed")
	}
}

func isHere(t *testing.T, s sandbox.Sandbox) {
	t.Helper()
	select {
	case <-s.Gone():
		t.Fatal("gone was closed")
	default:
	}
}

// Newest is a fence that no sandbox refuses, for what a handle names.
func Newest(h sandbox.Handle) runner.Fence {
	f := runner.Fence{Epoch: math.MaxUint64}
	_ = json.Unmarshal(h, &f) // drivers keep these two in it; else it is refused
	f.Epoch = math.MaxUint64
	return f
}
