//go:build linux

package gvisor_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/sandboxtest"
)

// spares lists the boxes that wait for a session.
func (h *fixture) spares() []string {
	h.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.dir, "boxes", "*", "run", "bell"))
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// spare waits until one is ready.
func (h *fixture) spare() string {
	h.t.Helper()
	for ctx := within(h.t); ; {
		for _, bell := range h.spares() {
			if started, _ := h.Spares(); started > 0 {
				return filepath.Base(filepath.Dir(filepath.Dir(bell)))
			}
		}
		if !wait(ctx) {
			h.t.Fatal("no spare is made")
		}
	}
}

func TestASessionTakesASpareAndAnotherIsMade(t *testing.T) {
	h := newHouseWith(t, 1)
	h.spare()
	first := h.create(fence(1, 1))
	h.sh(first, "echo mine >file; cd; echo home >file; echo tmp >/tmp/file")
	if err := h.Stop(within(t), first.Handle(), sandboxtest.Newest(first.Handle())); err != nil {
		t.Fatal(err)
	}
	h.spare()
	second := h.create(fence(2, 2))
	if got := h.sh(second, "cat file; cd; cat file; cat /tmp/file"); got != "mine\nhome\ntmp" {
		t.Errorf("it has %q", got)
	}
	h.spare()
	other, err := h.Create(within(t), sandbox.Spec{Fence: runner.Fence{Session: "sesn_other", Generation: 1, Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if got := h.sh(other, "ls /workspace /root /tmp"); got != "/root:\n\n/tmp:\n\n/workspace:" {
		t.Errorf("another session has %q", got)
	}
}

func TestASessionWakesInASandboxMadeAhead(t *testing.T) {
	h := newHouseWith(t, 1)
	first := h.create(fence(1, 1))
	h.sh(first, "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >pid")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Freeze(within(t), first.Handle(), fence(1, 1)); err != nil {
		t.Fatal(err)
	}
	for ctx := within(t); ; {
		if _, blank := h.Spares(); blank > 0 {
			break
		}
		if !wait(ctx) {
			t.Fatal("no sandbox is made ahead")
		}
	}
	ahead := make(map[string]bool)
	boxes, err := os.ReadDir(filepath.Join(h.dir, "boxes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range boxes {
		ahead[e.Name()] = true
	}
	second := h.create(fence(2, 1))
	var at struct{ Box string }
	if err := json.Unmarshal(second.Handle(), &at); err != nil {
		t.Fatal(err)
	}
	if !ahead[at.Box] {
		t.Errorf("it woke in %s, and not in one of %v", at.Box, boxes)
	}
	if woken, ok := second.(sandbox.Restored); !ok || !woken.Processes().Kept {
		t.Error("its processes were not kept")
	}
	if got := h.sh(second, "kill -0 $(cat pid) && echo lives"); got != "lives" {
		t.Errorf("its process: %q", got)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "boxes", "."+at.Box)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still held as a spare: %v", err)
	}
}

func TestNothingIsLeftOfASpareThatDied(t *testing.T) {
	h := newHouseWith(t, 1)
	dead := h.spare()
	pid := kernelOf(t, h.dir, sandbox.Handle(`{"Box":"`+dead+`"}`))
	kernel, err := pidfd.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	kernel.Signal(unix.SIGKILL)
	if err := kernel.Wait(within(t)); err != nil { // all of its threads
		t.Fatal(err)
	}
	h.sh(h.create(fence(1, 1)), "true")
	left, err := filepath.Glob(filepath.Join(h.dir, "boxes", "*"+dead))
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if left, err := filepath.Glob("/sys/fs/cgroup/*/dormouse*/*" + dead); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestASpareOfALivingServerIsNotSwept(t *testing.T) {
	h := newHouseWith(t, 1)
	mine := h.spare()
	second := openWith(t, h.dir, 1) // another server on the same directory
	if err := second.Sweep(within(t), func(dormouse.SessionID) sandbox.Ownership { return sandbox.Ownership{} }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "boxes", mine)); err != nil {
		t.Errorf("the spare is gone: %v", err)
	}
	s := h.create(fence(1, 1))
	h.sh(s, "true")
}

func BenchmarkCreate(b *testing.B) {
	h := newHouseWith(b, 1)
	generation := uint64(0)
	for b.Loop() {
		b.StopTimer()
		h.spare()
		generation++
		b.StartTimer()
		s := h.create(fence(generation, 1))
		h.sh(s, "true")
		b.StopTimer()
		if err := h.Stop(within(b), s.Handle(), sandboxtest.Newest(s.Handle())); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func TestAKernelWhoseNotesAreTornIsEnded(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo kept >file")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var at struct{ Box string }
	if err := json.Unmarshal(s.Handle(), &at); err != nil {
		t.Fatal(err)
	}
	notes, err := filepath.Glob(filepath.Join("/run/dormouse", instance(h.dir), at.Box+"*.state"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("%v, %v", notes, err)
	}
	if err := os.Truncate(notes[0], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Attach(within(t), s.Handle(), fence(1, 2)); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("attach: %v", err)
	}
	if n := len(h.processes(s)); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	second := h.create(fence(2, 2))
	if got := h.sh(second, "cat file"); got != "kept" {
		t.Errorf("it has %q", got)
	}
}
