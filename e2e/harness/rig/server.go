package rig

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// Server is one data directory and how it is served, across any number of lives.
type Server struct {
	Binary
	Data string
	// Store is where its sessions are, if not in the data directory.
	Store Store
	// Sandbox is the kind of its sandboxes, local if empty.
	Sandbox string
	// Model is the URL of the scripted model.
	Model string
	// Flags are added to the command line, Env to the environment.
	Flags, Env []string
	// Log is the file that what it says on stderr is appended to.
	Log string
	// Thaw is how long a life that is told to freeze stands still.
	Thaw time.Duration
	// Patient is how long a life may take to listen, if not the usual time.
	Patient time.Duration
}

// startWithin bounds how long a server may take to listen.
const startWithin = 15 * time.Second

// Start begins a life and returns once it listens or has died. hits, if not
// empty, is the file that every point it visits is noted in.
func (s *Server) Start(ctx context.Context, arm Arm, hits string) (*Life, error) {
	args := []string{"serve", "--data", s.Data, "--listen", "127.0.0.1:0", "--model", "scripted", "--scripted-url", s.Model, "--sandbox", cmp.Or(s.Sandbox, "local")}
	if s.Runner != "" {
		args = append(args, "--runner", s.Runner)
	}
	cmd := exec.CommandContext(ctx, s.Server, slices.Concat(args, s.Store.flags(), s.Flags)...)
	cmd.Env = slices.Concat(withoutOwn(os.Environ()), []string{"GOMAXPROCS=2"}, s.Env)
	if arm.Point != "" {
		cmd.Env = append(cmd.Env, "DORMOUSE_CRASH_AT="+arm.String())
	}
	if hits != "" {
		cmd.Env = append(cmd.Env, "DORMOUSE_CRASH_HITS="+hits)
	}
	log, err := os.OpenFile(s.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	fmt.Fprintf(log, "--- a server starts, armed with %s\n", arm)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l := &Life{Arm: arm, cmd: cmd, done: make(chan struct{}), Born: time.Now()}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	listening := make(chan string, 1)
	go func() {
		defer close(l.done)
		defer close(listening)
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n')
		if _, addr, ok := strings.Cut(strings.TrimSpace(line), "listening on http://"); ok {
			listening <- addr
		}
		_, _ = io.Copy(io.Discard, r)
		l.err = cmd.Wait()
	}()
	if arm.Death == crash.Freeze {
		go l.thaw(s.Thaw)
	}
	within := cmp.Or(s.Patient, startWithin)
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case l.addr = <-listening:
	case <-timer.C:
		l.Kill()
		return nil, fmt.Errorf("the server did not listen within %s: %s", within, s.Tail())
	}
	if l.addr == "" {
		<-l.done
		if !l.Killed() && !l.diedAsArmed() {
			return nil, fmt.Errorf("the server did not start: %w: %s", l.err, s.Tail())
		}
	}
	return l, nil
}

// withoutOwn drops the variables that would set the server's own flags.
func withoutOwn(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "DORMOUSE_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// Check has the server's own tool compare the rows of its store with the logs.
// Nothing may serve it. It returns what the tool found wrong.
func (s *Server) Check(ctx context.Context) (wrong string, err error) {
	if err := s.abandoned(ctx); err != nil {
		return "", err
	}
	args := slices.Concat([]string{"store", "rebuild", "--check", "--data", s.Data}, s.Store.flag())
	cmd := exec.CommandContext(ctx, s.Server, args...)
	cmd.Env = slices.Concat(withoutOwn(os.Environ()), s.Env)
	text, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return "store rebuild --check: " + strings.TrimSpace(string(text)), nil
	}
	return "", err
}

// Token is what clients show.
func (s *Server) Token() string {
	b, _ := os.ReadFile(filepath.Join(s.Data, "token")) // read again when it is there
	return strings.TrimSpace(string(b))
}

// Tail is the end of what the server said.
func (s *Server) Tail() string {
	const most = 4000
	b, _ := os.ReadFile(s.Log)
	return string(b[max(0, len(b)-most):])
}
