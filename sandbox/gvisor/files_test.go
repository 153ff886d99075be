//go:build linux

package gvisor_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/sandbox"
)

// killFiles kills the file server of a sandbox, and nothing else of it.
func (h *fixture) killFiles(s sandbox.Sandbox) {
	h.t.Helper()
	for pid, line := range h.processes(s) {
		if !strings.HasPrefix(line, "runsc-gofer\x00") {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			h.t.Fatal(err)
		}
		return
	}
	h.t.Fatal("there is no file server")
}

func TestASandboxEndsWithItsFileServer(t *testing.T) {
	h := newFixture(t)
	first := h.create(fence(1, 1))
	h.counting(first)
	h.freeze(first, fence(1, 1))
	second := h.create(fence(2, 2)) // nothing reports that a woken one has lost its file server
	h.killFiles(second)
	select {
	case <-second.Gone():
	case <-time.After(10 * time.Second):
		t.Fatal("the sandbox lives on without files")
	}
}

func TestASandboxWithoutFilesIsNotAttachedTo(t *testing.T) {
	h := newFixture(t)
	h.freeze(h.create(fence(1, 1)), fence(1, 1))
	s := h.create(fence(2, 2))
	handle := s.Handle()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h.killFiles(s)
	began := time.Now()
	if _, err := h.Attach(within(t), handle, fence(2, 3)); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("attach: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to see that", took)
	}
	if n := len(h.processes(s)); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}
