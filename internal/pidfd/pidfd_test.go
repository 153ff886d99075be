//go:build linux

package pidfd_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/pidfd"
)

func TestAProcessIsWatchedUntilItEnds(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := pidfd.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.Ended() {
		t.Error("a process that runs has ended")
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if p.Wait(short) == nil {
		t.Error("waited for a process that runs, and was told that it ended")
	}
	p.Signal(unix.SIGKILL)
	if err := p.Wait(t.Context()); err != nil || !p.Ended() {
		t.Errorf("after a kill: %v, ended %v", err, p.Ended())
	}
	pid := p.PID
	p.Close() // which reaps it
	if _, err := pidfd.Open(pid); err == nil {
		t.Error("the process is still there")
	}
}

func TestAProcessThatIsNotThereIsNotWatched(t *testing.T) {
	if _, err := pidfd.Open(1 << 30); err == nil {
		t.Error("got hold of nobody")
	}
}
