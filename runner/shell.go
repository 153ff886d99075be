//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	shellsDir = "shells"

	// abortSignal makes a shell skip the rest of its command: the last of the
	// real-time signals, which nothing else uses.
	abortSignal = syscall.Signal(64)
)

// errShellEnded: the shell was over before it read the command.
var errShellEnded = errors.New("the shell ended before it began the command")

// shell is a bash that lives on from command to command.
//
// It reads a script that never ends, a FIFO called bash in a directory of its
// own, so that its commands run at the top level, as if they were typed. Of
// each it is sent one line that has it read the rest, which is quick, where a
// script in a pipe is read byte by byte. The command prints to a FIFO of its
// own and its exit code goes to another, each opened by name: there is no
// descriptor that a command could close.
type shell struct {
	*process        // what it prints are exit codes
	dir      string // its FIFOs
	script   *os.File
	codes    *os.File      // our hold on the FIFO of exit codes
	clock    *os.File      // /proc/uptime
	stop     chan struct{} // closed to end it
	stopOnce sync.Once

	// What follows belongs to the op whose turn it is.
	seq   uint64 // the newest command
	spare string // a FIFO for what a command prints; making one costs more than the rest

	mu      sync.Mutex
	current *shellCommand // guarded by mu; what it was told to run and has not reported
	over    bool          // guarded by mu; it takes no more
}

// startShell starts a shell in dir, which is made for it, or takes the one that was
// started ahead.
func (r *Runner) startShell(ctx context.Context, dir string) (sh *shell, err error) {
	if _, err := os.Stat(r.opts.Workspace); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	if sh = r.shells.ahead.Swap(nil); sh != nil && !sh.gone() {
		if err := errors.Join(os.RemoveAll(dir), os.Rename(sh.dir, dir)); err != nil {
			sh.end()
			return nil, fmt.Errorf("start a shell: %w", err)
		}
		sh.dir = dir
	} else if sh, err = r.openShell(ctx, dir); err != nil {
		return nil, err
	}
	if _, err := sh.script.WriteString(sh.prologue(r.opts.Workspace)); err != nil {
		sh.end()
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	return sh, nil
}

// aheadDir is no name of a shell, which begins with an @.
const aheadDir = "ahead"

// StartAhead starts a shell for the first command that needs one. It is for a
// runner that has to wait before it can Run with the same context.
func (r *Runner) StartAhead(ctx context.Context) error {
	if r.shell != bashPath {
		return nil
	}
	sh, err := r.openShell(ctx, filepath.Join(r.opts.Shells, aheadDir))
	if err == nil {
		r.shells.ahead.Store(sh)
	}
	return err
}

// openShell starts a shell in dir that waits for its script.
func (r *Runner) openShell(ctx context.Context, dir string) (sh *shell, err error) {
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	sh = &shell{dir: dir, stop: make(chan struct{})}
	if err := makeFIFO(sh.file("bash")); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	if sh.script, err = os.OpenFile(sh.file("bash"), os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = append(undo, func() { _ = sh.script.Close() })
	if sh.clock, err = os.Open("/proc/uptime"); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = append(undo, func() { _ = sh.clock.Close() })
	if err := makeFIFO(sh.file("codes")); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	pipe, codes, err := openFIFO(sh.file("codes"))
	if err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = append(undo, func() { _, _ = pipe.Close(), codes.Close() })
	sh.codes = codes
	cmd := exec.Command(r.shell, "--noprofile", "--norc", "bash") //nolint:gosec,noctx // our own shell; keepShell ends it
	cmd.Dir = dir
	cmd.Env = append(slices.Clip(r.opts.Env), runnerVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	sh.process = newProcess(cmd, pipe)
	if err := r.launch(sh.process, &statusReader{report: sh.report}); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = nil // ours to keep now
	r.running.Go(func() { r.keepShell(ctx, sh) })
	return sh, nil
}

func makeFIFO(name string) error {
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: name, Err: err}
	}
	return nil
}

// openFIFO opens a FIFO to read. It does not end before holder is closed.
func openFIFO(name string) (reader, holder *os.File, err error) {
	if reader, err = os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, nil, err
	}
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0) // it waits for nobody: there is a reader
	if err != nil {
		return nil, nil, errors.Join(err, reader.Close())
	}
	return reader, os.NewFile(uintptr(fd), name), nil
}

func (sh *shell) file(name string) string { return filepath.Join(sh.dir, name) }

// keepShell stays with sh until it is over. It ends it when it is told to, or
// when the runner ends.
func (r *Runner) keepShell(ctx context.Context, sh *shell) {
	select {
	case <-sh.exited:
	case <-sh.stop:
	case <-ctx.Done():
	}
	sh.mu.Lock()
	sh.over = true
	c := sh.current
	sh.mu.Unlock()
	_ = sh.script.SetWriteDeadline(time.Now()) // nobody may be left to read
	read := 0
	if c != nil {
		<-c.sent
		read = c.wrote - sh.left()
	}
	_ = sh.script.Close() // its script ends, and with it an idle shell
	patience := time.NewTimer(2 * r.opts.Grace)
	defer patience.Stop()
	select {
	case <-sh.exited:
	case <-patience.C:
		_ = sh.cmd.Process.Kill()
		<-sh.exited
	}
	_, _ = sh.codes.Close(), sh.clock.Close()
	sh.finish()
	sh.close(read)
}

// end has the shell ended; it is idle.
func (sh *shell) end() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.over = true
	sh.stopOnce.Do(func() { close(sh.stop) })
}

// gone reports whether the shell takes no more.
func (sh *shell) gone() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.over
}

// quote makes one word of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
