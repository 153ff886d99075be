package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// Life is one process of a server.
type Life struct {
	Arm  Arm
	Born time.Time

	cmd   *exec.Cmd
	addr  string // empty if it died before it listened
	done  chan struct{}
	err   error                     // set before done is closed
	spent atomic.Bool               // it was frozen where it was told, and goes on
	froze atomic.Pointer[time.Time] // when that was
	shot  atomic.Bool               // the test killed it
	meant atomic.Bool               // the test told it to stop
}

// Addr is where it listens.
func (l *Life) Addr() string { return l.addr }

// PID names the process.
func (l *Life) PID() int { return l.cmd.Process.Pid }

// Done is closed once the process is gone.
func (l *Life) Done() <-chan struct{} { return l.done }

// Gone reports whether the process is gone.
func (l *Life) Gone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Kill is kill -9, and returns once the process is gone.
func (l *Life) Kill() {
	l.Signal(syscall.SIGKILL)
	<-l.done
}

// Signal sends a signal.
func (l *Life) Signal(s os.Signal) {
	switch s {
	case syscall.SIGKILL:
		l.shot.Store(true)
	case syscall.SIGTERM:
		l.meant.Store(true)
	}
	_ = l.cmd.Process.Signal(s)
}

// Killed reports whether a process that is gone died of SIGKILL.
func (l *Life) Killed() bool {
	exit, ok := errors.AsType[*exec.ExitError](l.err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// well reports whether the process answers a health check at once.
func (l *Life) well() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.addr+"/healthz", nil)
	if err != nil {
		return false
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

// Frozen reports whether the process is stopped by a signal.
func (l *Life) Frozen() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.PID()))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ") // its name may hold anything
	return strings.HasPrefix(rest, "T")
}

// FreezeFor stops the process by a signal; thawed is closed when it goes on after a while,
// or is gone.
func (l *Life) FreezeFor(d time.Duration) (thawed <-chan struct{}) {
	l.Signal(syscall.SIGSTOP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-l.done:
		case <-time.After(d):
			l.Signal(syscall.SIGCONT)
		}
	}()
	return done
}

// thaw resumes, after a while, a process that froze at its crash point.
func (l *Life) thaw(after time.Duration) {
	for !l.Frozen() {
		select {
		case <-l.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	at := time.Now()
	l.froze.Store(&at)
	l.spent.Store(true)
	select {
	case <-l.done:
	case <-time.After(after):
		l.Signal(syscall.SIGCONT)
	}
}

// diedAsArmed reports whether a life died where and how it was armed to. One that
// was armed to panic may have survived that, and only the points it visited tell.
func (l *Life) diedAsArmed() bool {
	if l.Arm.Point == "" || l.Arm.InRunner() {
		return false
	}
	switch l.Arm.Death {
	case crash.Kill:
		return l.Gone() && l.Killed() && !l.shot.Load()
	case crash.Exit:
		return l.Gone() && l.code() == 1
	case crash.Panic:
		return l.Gone() && l.code() == 2
	case crash.Freeze:
		return l.spent.Load()
	}
	return false
}

// code is the exit status of a process that is gone.
func (l *Life) code() int {
	exit, ok := errors.AsType[*exec.ExitError](l.err)
	if !ok {
		return 0
	}
	return exit.ExitCode()
}

// Err is how a process that is gone ended, nil if it stopped as told.
func (l *Life) Err() error { return l.err }

// Stop tells the process to stop and returns once it has.
func (l *Life) Stop() error {
	const patience = 20 * time.Second
	l.Signal(syscall.SIGTERM)
	select {
	case <-l.done:
		return l.err
	case <-time.After(patience):
		l.Kill()
		return fmt.Errorf("the server did not stop within %s", patience)
	}
}
