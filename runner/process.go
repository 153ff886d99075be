//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

const (
	// lateOutput is how long output is waited for once a command has exited but
	// something it started still holds its output open.
	lateOutput = 100 * time.Millisecond
	// maxPipe is the most that a pipe holds.
	maxPipe = 1 << 20
	// endPatience bounds the ending of processes that will not die.
	endPatience = 10 * time.Second
)

// process is a command that runs.
type process struct {
	cmd     *exec.Cmd
	pipe    *os.File
	exited  chan struct{} // closed once cmd is waited for
	eof     chan struct{} // closed once nobody can print any more
	sealing chan struct{} // closed once only what is already printed matters
	sealed  chan struct{} // closed once that is read
}

// spawn starts the command of o in a session of its own. What it prints goes to
// out until the process is sealed, and is read away after that: a command's
// children must not die of a pipe that nobody reads.
func (r *Runner) spawn(o *op, out io.Writer) (*process, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(r.shell, "-c", o.call.Exec.Command) //nolint:gosec,noctx // running what it is told is its trade; supervise ends it
	cmd.Dir = r.opts.Workspace
	cmd.Env = append(slices.Clip(r.opts.Env), opVariable+"="+string(o.call.Op), runnerVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdout, cmd.Stderr = pw, pw
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &process{
		cmd:     cmd,
		pipe:    pr,
		exited:  make(chan struct{}),
		eof:     make(chan struct{}),
		sealing: make(chan struct{}),
		sealed:  make(chan struct{}),
	}
	err = r.own(p)
	_ = pw.Close()
	if err != nil {
		_ = pr.Close()
		return nil, err
	}
	r.running.Go(func() {
		defer close(p.exited)
		_ = cmd.Wait() // how it ended is in its state
		r.disown(p)
	})
	r.draining.Go(func() {
		defer close(p.eof)
		p.drain(out)
		r.letGo(p)
	})
	return p, nil
}

// own starts p's command and takes note of it in one step, so that whoever
// looks for orphans never sees a child of ours before we know it.
func (r *Runner) own(p *process) error {
	r.procMu.Lock()
	defer r.procMu.Unlock()
	if r.closed {
		return errors.New("runner is ending")
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	r.owned[p.cmd.Process.Pid] = true
	r.pipes[p.pipe] = true
	return nil
}

func (r *Runner) disown(p *process) {
	r.procMu.Lock()
	defer r.procMu.Unlock()
	delete(r.owned, p.cmd.Process.Pid)
}

func (r *Runner) letGo(p *process) {
	r.procMu.Lock()
	defer r.procMu.Unlock()
	delete(r.pipes, p.pipe)
	_ = p.pipe.Close()
}

func (p *process) drain(out io.Writer) {
	buf := make([]byte, 32<<10)
	sealing := p.sealing
	for {
		n, err := p.pipe.Read(buf)
		_, _ = out.Write(buf[:n])
		if err == nil {
			continue
		}
		select {
		case <-sealing:
		default:
			return
		}
		p.drainHeld(out, buf)
		out, sealing = io.Discard, nil
		_ = p.pipe.SetReadDeadline(time.Time{})
		close(p.sealed)
	}
}

// drainHeld reads what the pipe holds, and waits for no more. What the command
// itself printed is there: however late we are, that is not lost.
func (p *process) drainHeld(out io.Writer, buf []byte) {
	c, err := p.pipe.SyscallConn()
	if err != nil {
		return
	}
	for total, n := 0, 1; n > 0 && total < maxPipe; total += n {
		n = 0
		_ = c.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), buf) })
		n = max(n, 0)
		_, _ = out.Write(buf[:n])
	}
}

// seal has drain read what there is to read now and no more. It returns once
// nothing goes to out any longer.
func (p *process) seal() {
	close(p.sealing)
	_ = p.pipe.SetReadDeadline(time.Now()) // it fails if drain is over
	select {
	case <-p.sealed:
	case <-p.eof:
	}
}

// exit is the command's exit code, 128+n after signal n.
func (p *process) exit() int {
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// supervise waits for p's command and ends it, with all it started, when its
// time is up, when it is killed, or when the runner ends.
func (r *Runner) supervise(ctx context.Context, o *op, p *process) (timedOut, killed bool) {
	var timeout <-chan time.Time
	if d := o.call.Exec.Timeout; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-p.exited:
		return false, false
	case <-timeout:
		timedOut = true
	case <-o.end:
		killed = true
	case <-ctx.Done():
		killed = true
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	pid, id, us := p.cmd.Process.Pid, string(o.call.Op), strconv.Itoa(os.Getpid())
	err := proctree.End(ending, func(q proctree.Process) bool {
		if q.PID == pid || q.Session == pid {
			return true
		}
		op, _ := q.Variable(opVariable)
		if op != id {
			return false
		}
		runner, _ := q.Variable(runnerVariable)
		return runner == us
	}, r.opts.Grace)
	if err != nil {
		r.log.ErrorContext(ctx, "op not ended", "op", id, "error", err)
	}
	<-p.exited
	return timedOut, killed
}

// exec carries out a command and returns how it ended.
func (r *Runner) exec(ctx context.Context, o *op) Result {
	p, err := r.spawn(o, &o.output)
	if err != nil {
		return Result{Exit: -1, Error: err.Error()}
	}
	crash.At(crash.RunnerStarted)
	o.begun()
	timedOut, killed := r.supervise(ctx, o, p)
	late := time.NewTimer(lateOutput)
	defer late.Stop()
	select {
	case <-p.eof:
	case <-late.C:
		p.seal()
	}
	out, omitted := o.output.take()
	return Result{Exit: p.exit(), Output: out, Omitted: omitted, TimedOut: timedOut, Killed: killed}
}

// task starts a command and leaves it running.
func (r *Runner) task(ctx context.Context, o *op) Result {
	name := filepath.Join(r.opts.Dir, tasksDir, string(o.call.Op)+".log")
	log, err := newLogFile(name)
	if err != nil {
		close(o.over)
		return Result{Exit: -1, Error: err.Error()}
	}
	p, err := r.spawn(o, log)
	if err != nil {
		close(o.over)
		return Result{Exit: -1, Error: errors.Join(err, log.Close()).Error()}
	}
	crash.At(crash.RunnerStarted)
	r.mu.Lock()
	r.tasks[o.call.Op] = o
	r.mu.Unlock()
	r.running.Go(func() {
		r.supervise(ctx, o, p)
		r.mu.Lock()
		delete(r.tasks, o.call.Op)
		r.mu.Unlock()
		close(o.over)
	})
	r.draining.Go(func() {
		<-p.eof
		_ = log.Close()
	})
	return Result{PID: p.cmd.Process.Pid, Log: name}
}

// maxLog bounds a task's log, of which there is at most one older part.
const maxLog = 8 << 20

// logFile is a task's output, bounded: when it is full it is set aside and
// begun again.
type logFile struct {
	name string
	file *os.File
	size int
}

func newLogFile(name string) (*logFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // commands may run as somebody else and read it
	if err != nil {
		return nil, fmt.Errorf("open the task's log: %w", err)
	}
	return &logFile{name: name, file: f}, nil
}

// Write never fails: a task goes on when its log cannot.
func (l *logFile) Write(b []byte) (int, error) {
	if l.size+len(b) > maxLog {
		if os.Rename(l.name, l.name+".1") == nil {
			if next, err := newLogFile(l.name); err == nil {
				_ = l.file.Close()
				*l = *next
			}
		}
	}
	if l.size+len(b) <= maxLog {
		n, _ := l.file.Write(b)
		l.size += n
	}
	return len(b), nil
}

func (l *logFile) Close() error { return l.file.Close() }
