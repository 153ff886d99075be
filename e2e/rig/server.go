package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// Server is one data directory and how it is served, across any number of lives.
type Server struct {
	Binary
	Data string
	// Model is the URL of the scripted model.
	Model string
	// Flags are added to the command line.
	Flags []string
	// Log is the file that what it says on stderr is appended to.
	Log string
}

// Arm tells a life where to die. The zero Arm is an ordinary life.
type Arm struct {
	Point crash.Point
	Visit int
}

func (a Arm) String() string {
	if a.Point == "" {
		return "-"
	}
	return fmt.Sprintf("%s#%d", a.Point, max(a.Visit, 1))
}

// Life is one process of a server.
type Life struct {
	Arm  Arm
	Born time.Time

	cmd  *exec.Cmd
	addr string // empty if it died before it listened
	done chan struct{}
	err  error // set before done is closed
}

// startWithin bounds how long a server may take to listen.
const startWithin = 15 * time.Second

// Start begins a life and returns once it listens or has died. hits, if not
// empty, is the file that every point it visits is noted in.
func (s *Server) Start(ctx context.Context, arm Arm, hits string) (*Life, error) {
	args := []string{"serve", "--data", s.Data, "--listen", "127.0.0.1:0", "--model", "scripted", "--scripted-url", s.Model}
	if s.Runner != "" {
		args = append(args, "--runner", s.Runner)
	}
	cmd := exec.CommandContext(ctx, s.Server, append(args, s.Flags...)...)
	cmd.Env = append(withoutOurs(os.Environ()), "GOMAXPROCS=2")
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
	timer := time.NewTimer(startWithin)
	defer timer.Stop()
	select {
	case l.addr = <-listening:
	case <-timer.C:
		l.Kill()
		return nil, fmt.Errorf("the server did not listen within %s: %s", startWithin, s.Tail())
	}
	if l.addr == "" {
		<-l.done
		if !l.Killed() {
			return nil, fmt.Errorf("the server did not start: %w: %s", l.err, s.Tail())
		}
	}
	return l, nil
}

// withoutOurs drops the variables that would set the server's own flags.
func withoutOurs(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "DORMOUSE_") {
			kept = append(kept, e)
		}
	}
	return kept
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
	_ = l.cmd.Process.Signal(syscall.SIGKILL)
	<-l.done
}

// Signal sends a signal.
func (l *Life) Signal(s os.Signal) { _ = l.cmd.Process.Signal(s) }

// Killed reports whether a process that is gone died of SIGKILL.
func (l *Life) Killed() bool {
	var exit *exec.ExitError
	if !errors.As(l.err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
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

// Keeper keeps a server alive: when a life ends, the next one of its list
// begins, and after the last an ordinary one.
type Keeper struct {
	*Server
	// Hits, if not nil, names the file for the points that life n visits.
	Hits func(n int) string
	// Between, if not nil, runs between two lives.
	Between func(n int)

	ctx    context.Context //nolint:containedctx // the keeper's own life
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	arms    []Arm         // guarded by mu; of lives to come
	now     *Life         // guarded by mu
	lives   int           // guarded by mu
	Deaths  []Arm         // guarded by mu; points that killed a server
	err     error         // guarded by mu; why there is no next life
	changed chan struct{} // guarded by mu; closed when one of the above changes
	hold    bool          // guarded by mu; no new life until resumed
}

// Keep starts keeping s alive.
func Keep(ctx context.Context, s *Server, arms []Arm) *Keeper {
	k := &Keeper{Server: s, arms: arms, changed: make(chan struct{}), ended: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(ctx)
	return k
}

// Run begins the first life; it returns at once.
func (k *Keeper) Run() { go k.run() }

func (k *Keeper) run() {
	defer close(k.ended)
	for n := 0; k.ctx.Err() == nil; n++ {
		if !k.mayStart() {
			return
		}
		k.mu.Lock()
		var arm Arm
		if len(k.arms) > 0 {
			arm, k.arms = k.arms[0], k.arms[1:]
		}
		k.mu.Unlock()
		hits := ""
		if k.Hits != nil {
			hits = k.Hits(n)
		}
		l, err := k.Start(k.ctx, arm, hits)
		k.set(func() { k.now, k.lives, k.err = l, k.lives+1, err })
		if err != nil {
			return
		}
		select {
		case <-l.done:
		case <-k.ctx.Done():
			<-l.done
		}
		k.set(func() {
			k.now = nil
			if arm.Point != "" && l.Killed() {
				k.Deaths = append(k.Deaths, arm)
			}
		})
		if k.Between != nil && k.ctx.Err() == nil {
			k.Between(n)
		}
	}
}

// mayStart waits while lives are held back.
func (k *Keeper) mayStart() bool {
	for {
		k.mu.Lock()
		hold, changed := k.hold, k.changed
		k.mu.Unlock()
		if !hold {
			return true
		}
		select {
		case <-changed:
		case <-k.ctx.Done():
			return false
		}
	}
}

func (k *Keeper) set(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// Live returns the life that listens now, waiting for one if need be.
func (k *Keeper) Live(ctx context.Context) (*Life, error) {
	for {
		k.mu.Lock()
		l, err, changed := k.now, k.err, k.changed
		k.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if l != nil && l.addr != "" && !l.Gone() {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-k.ended:
			return nil, errors.New("the server is no longer kept alive")
		case <-time.After(5 * time.Millisecond): // a life that is going
		}
	}
}

// Armed reports whether lives that should die have not, or are yet to come.
func (k *Keeper) Armed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.arms) > 0 || k.now != nil && k.now.Arm.Point != ""
}

// Disarm makes every life from now on an ordinary one. A life that did not die
// where it was told is stopped.
func (k *Keeper) Disarm() {
	k.mu.Lock()
	k.arms = nil
	l := k.now
	k.mu.Unlock()
	if l != nil && l.Arm.Point != "" && !l.Gone() {
		l.Kill()
	}
}

// Died lists the points that killed a server so far.
func (k *Keeper) Died() []Arm {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]Arm(nil), k.Deaths...)
}

// Lives counts the processes so far.
func (k *Keeper) Lives() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lives
}

// Hold holds back the next life.
func (k *Keeper) Hold() { k.set(func() { k.hold = true }) }

// Halt stops the server as an operator would and holds back the next life. If
// the server was gone already there is nothing to stop.
func (k *Keeper) Halt(ctx context.Context) error {
	k.Hold()
	for {
		k.mu.Lock()
		l, err := k.now, k.err
		k.mu.Unlock()
		if err != nil || l == nil {
			return err
		}
		if err := l.Stop(); err != nil && !l.Killed() {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// Resume lets the next life begin.
func (k *Keeper) Resume() { k.set(func() { k.hold = false }) }

// Close ends the server, however it is, and waits for it.
func (k *Keeper) Close() {
	k.cancel()
	k.mu.Lock()
	l := k.now
	k.mu.Unlock()
	if l != nil {
		l.Kill()
	}
	<-k.ended
}
