//go:build linux

package proctree_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/runner/proctree"
)

func marked(value string) func(proctree.Process) bool {
	return func(p proctree.Process) bool {
		v, _ := p.Variable("PROCTREE_TEST")
		return v == value
	}
}

// launch starts a command that carries mark and waits until it has said so.
func launch(t *testing.T, mark, command string) *exec.Cmd {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	c := exec.Command("/bin/sh", "-c", command+"\ntouch "+ready+"; while :; do sleep 0.05; done")
	c.Env = append(os.Environ(), "PROCTREE_TEST="+mark)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-exited })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			return c
		}
		if time.Now().After(end) {
			t.Fatal("the command never began")
		}
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestEndLeavesNothing(t *testing.T) {
	for name, command := range map[string]string{
		"one process":                    "",
		"a child without its mark":       "env -i sleep 1000 &",
		"a child in its own session":     "setsid sleep 1000 &",
		"a child without a parent":       "(setsid sleep 1000 &)",
		"a process that will not":        "trap '' TERM",
		"a process that is stopped":      "(sh -c 'kill -STOP $$' &)",
		"processes that keep on forking": "f() { while :; do (sleep 0.01 &); done; }; f & f &",
	} {
		t.Run(name, func(t *testing.T) {
			launch(t, t.Name(), command)
			other := launch(t, "other", "")
			if err := proctree.End(within(t), marked(t.Name()), 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if left, err := proctree.Find(marked(t.Name())); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if err := other.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("somebody else's process: %v", err)
			}
		})
	}
}

func TestEndAsksFirst(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	launch(t, t.Name(), "trap 'touch "+said+"; exit' TERM")
	if err := proctree.End(within(t), marked(t.Name()), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(said); err != nil {
		t.Errorf("it was not asked: %v", err)
	}
}

func TestEndGivesUpWithItsContext(t *testing.T) {
	launch(t, t.Name(), "trap '' TERM")
	why := errors.New("changed my mind")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
	defer cancel()
	if err := proctree.End(ctx, marked(t.Name()), time.Minute); !errors.Is(err, why) {
		t.Errorf("end: %v", err)
	}
}

func TestFindLeavesOutTheCaller(t *testing.T) {
	found, err := proctree.Find(func(p proctree.Process) bool { return p.PID == os.Getpid() })
	if err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}
