package inside

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
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/proctree"
)

const (
	// lateOutput is how long the runner reads on once a command has exited but one of
	// its children keeps the pipe open.
	lateOutput = 100 * time.Millisecond
	// maxPipe is the largest capacity of a pipe.
	maxPipe = 1 << 20
	// endTimeout bounds the wait for processes to end.
	endTimeout = 10 * time.Second
)

// output is the read end of the pipe that a command prints to.
type output struct {
	pipe    *os.File
	eof     chan struct{} // closed at EOF
	sealing chan struct{} // closed to stop reading once the pipe is empty
	sealed  chan struct{} // closed once it was empty
}

func newOutput(pipe *os.File) *output {
	return &output{pipe: pipe, eof: make(chan struct{}), sealing: make(chan struct{}), sealed: make(chan struct{})}
}

// drain reads p in the background until EOF. Output goes to out until p is sealed, and
// is discarded after that.
func (r *Runner) drain(p *output, out io.Writer) {
	r.procMu.Lock()
	r.pipes[p.pipe] = true
	r.procMu.Unlock()
	r.draining.Go(func() {
		defer close(p.eof)
		p.drain(out)
		r.procMu.Lock()
		defer r.procMu.Unlock()
		delete(r.pipes, p.pipe)
		_ = p.pipe.Close()
	})
}

func (p *output) drain(out io.Writer) {
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
		p.drainBuffered(out, buf)
		out, sealing = io.Discard, nil
		_ = p.pipe.SetReadDeadline(time.Time{})
		close(p.sealed)
	}
}

// drainBuffered reads what is in the pipe without waiting for more. All that the command
// itself printed is there, so it is not lost however late we read.
func (p *output) drainBuffered(out io.Writer, buf []byte) {
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

// finish returns once nothing is written to out any more. It is called when the command
// has exited, and gives the children it left behind lateOutput to print.
func (p *output) finish() {
	late := time.NewTimer(lateOutput)
	defer late.Stop()
	select {
	case <-p.eof:
	case <-late.C:
		p.seal()
	}
}

// seal makes drain read what is in the pipe now and discard the rest. It returns once
// nothing is written to out any more.
func (p *output) seal() {
	close(p.sealing)
	_ = p.pipe.SetReadDeadline(time.Now()) // it fails if drain has ended
	select {
	case <-p.sealed:
	case <-p.eof:
	}
}

// process is a running command.
type process struct {
	*output
	cmd    *exec.Cmd
	exited chan struct{} // closed once cmd is waited for
}

func newProcess(cmd *exec.Cmd, pipe *os.File) *process {
	return &process{output: newOutput(pipe), cmd: cmd, exited: make(chan struct{})}
}

// spawn starts the command of o in a session of its own. Its output goes to out until
// the process is sealed, and is discarded after that, so that its children do not die of
// SIGPIPE or block.
func (r *Runner) spawn(o *op, out io.Writer) (*process, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(r.shell, "-c", o.call.Exec.Command) //nolint:gosec,noctx // running commands is its purpose; supervise ends it
	cmd.Dir = r.opts.Workspace
	cmd.Env = append(slices.Clip(r.opts.Env), opVariable+"="+string(o.call.Op), runnerVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdout, cmd.Stderr = pw, pw
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := newProcess(cmd, pr)
	err = r.launch(p, out)
	_ = pw.Close()
	if err != nil {
		_ = pr.Close()
		return nil, err
	}
	return p, nil
}

// launch starts p, waits for it and reads what it prints.
func (r *Runner) launch(p *process, out io.Writer) error {
	if err := r.own(p); err != nil {
		return err
	}
	r.running.Go(func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is in its state
		r.disown(p)
	})
	r.drain(p.output, out)
	return nil
}

// own starts p's command and registers it under one lock, so that reap never takes it
// for an orphan.
func (r *Runner) own(p *process) error {
	r.procMu.Lock()
	defer r.procMu.Unlock()
	if r.closed {
		return errors.New("runner is ending")
	}
	if err := r.startCommand(p.cmd); err != nil {
		return err
	}
	r.owned[p.cmd.Process.Pid] = true
	return nil
}

func (r *Runner) disown(p *process) {
	r.procMu.Lock()
	defer r.procMu.Unlock()
	delete(r.owned, p.cmd.Process.Pid)
}

// exit is the command's exit code, 128+n after signal n.
func (p *process) exit() int {
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// supervise waits for p's command. It ends the command and all its descendants when it
// times out, when it is killed, or when the runner ends.
func (r *Runner) supervise(ctx context.Context, o *op, p *process) (timedOut, killed bool) {
	if timedOut, killed = o.await(ctx, p.exited, func() {}); !timedOut && !killed {
		return false, false
	}
	pid := p.cmd.Process.Pid
	r.end(ctx, o, func(q proctree.Process) bool {
		return q.PID == pid || q.Session == pid || belongsTo(q, o)
	}, r.opts.Grace)
	<-p.exited
	return timedOut, killed
}

// end ends the processes of o that seed selects, and their descendants.
func (r *Runner) end(ctx context.Context, o *op, seed func(proctree.Process) bool, grace time.Duration) {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := proctree.End(ending, seed, grace); err != nil {
		r.log.ErrorContext(ctx, "op not ended", "op", o.call.Op, "error", err)
	}
}

// belongsTo reports whether q was started by o.
func belongsTo(q proctree.Process, o *op) bool {
	if id, _ := q.Variable(opVariable); id != string(o.call.Op) {
		return false
	}
	runner, _ := q.Variable(runnerVariable)
	return runner == strconv.Itoa(os.Getpid())
}

// exec runs a command and returns its result.
func (r *Runner) exec(ctx context.Context, o *op) runner.Result {
	p, err := r.spawn(o, &o.output)
	if err != nil {
		return runner.Result{Exit: -1, Error: err.Error()}
	}
	crash.At(crash.RunnerStarted)
	o.markAccepted()
	timedOut, killed := r.supervise(ctx, o, p)
	p.finish()
	out, omitted := o.output.take()
	return runner.Result{Exit: p.exit(), Output: out, Omitted: omitted, TimedOut: timedOut, Killed: killed}
}

// task starts a command and leaves it running.
func (r *Runner) task(ctx context.Context, o *op) runner.Result {
	name := filepath.Join(r.opts.Dir, tasksDir, string(o.call.Op)+".log")
	log, err := newLogFile(name)
	if err != nil {
		close(o.over)
		return runner.Result{Exit: -1, Error: err.Error()}
	}
	p, err := r.spawn(o, log)
	if err != nil {
		close(o.over)
		return runner.Result{Exit: -1, Error: errors.Join(err, log.Close()).Error()}
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
	return runner.Result{PID: p.cmd.Process.Pid, Log: name}
}

// maxLog bounds a task's log; one rotated file is kept.
const maxLog = 8 << 20

// logFile is the log of a task. It is rotated when it is full.
type logFile struct {
	name string
	file *os.File
	size int
}

func newLogFile(name string) (*logFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // commands may run as another user and read it
	if err != nil {
		return nil, fmt.Errorf("open the task's log: %w", err)
	}
	return &logFile{name: name, file: f}, nil
}

// Write never fails: a task continues without its log.
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
