package inside

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const shellsDir = "shells"

// errShellEnded: the shell exited before it read the command.
var errShellEnded = errors.New("the shell ended before it began the command")

// shell is a bash that runs one command after another.
//
// It has a directory of its own with a script that never ends, so that its commands
// run at the top level, as if they were typed. Each line of the script reads a command
// from a FIFO and runs it. The script is a file because bash reads a script in a pipe
// byte by byte, and system calls are expensive in a sandbox. The shell and its commands
// print to another FIFO, and the shell writes the status of each command there too,
// after its output. The FIFO is replaced when a command may have left a process behind
// that prints, or has redirected the shell's output.
type shell struct {
	*process               // its output is the first FIFO
	dir      string        // its FIFOs and its script
	mark     string        // precedes an exit code in the output
	script   *os.File      // to add to
	commands *os.File      // to write to
	stop     chan struct{} // closed to end it
	stopOnce sync.Once

	// The following fields belong to the op whose turn it is.
	seq   uint64 // the newest command
	lines int    // how many more commands the script reads
	procs uint64 // how many processes there were when only the shell could print

	mu      sync.Mutex
	out     *shellPipe    // guarded by mu; the FIFO it prints to
	current *shellCommand // guarded by mu; the command without a status yet
	over    bool          // guarded by mu; it accepts no more commands
}

// startShell starts a shell in dir, or takes the prestarted one.
func (r *Runner) startShell(ctx context.Context, dir string) (sh *shell, err error) {
	if _, err := os.Stat(r.opts.Workspace); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	if sh = r.shells.prestarted.Swap(nil); sh != nil && !sh.gone() {
		if err := errors.Join(os.RemoveAll(dir), os.Rename(sh.dir, dir)); err != nil {
			sh.end()
			return nil, fmt.Errorf("start a shell: %w", err)
		}
		sh.dir = dir
	} else if sh, err = r.openShell(ctx, dir); err != nil {
		return nil, err
	}
	if _, err := sh.commands.WriteString(sh.prologue(r.opts.Workspace)); err != nil {
		sh.end()
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	return sh, nil
}

// prestartedDir cannot collide with the directory of a named shell, which begins
// with an @.
const prestartedDir = "ahead"

// PrestartShell starts a shell for the first command that needs one. It is for a runner
// that has to wait before it can Run with the same context.
func (r *Runner) PrestartShell(ctx context.Context) error {
	if r.shell != bashPath {
		return nil
	}
	sh, err := r.openShell(ctx, filepath.Join(r.opts.Shells, prestartedDir))
	if err == nil {
		r.shells.prestarted.Store(sh)
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
	sh = &shell{dir: dir, mark: rand.Text(), stop: make(chan struct{})}
	if sh.script, err = os.OpenFile(sh.file(scriptFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = append(undo, func() { _ = sh.script.Close() })
	if _, err := sh.script.WriteString(firstLine + strings.Repeat(nextCommand, scriptLines)); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	sh.lines = scriptLines - 1 // it must not reach EOF
	if err := makeFIFO(sh.file(commandsFIFO)); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	if sh.commands, err = os.OpenFile(sh.file(commandsFIFO), os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = append(undo, func() { _ = sh.commands.Close() })
	if sh.out, err = sh.openPipe(sh.file("to")); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = append(undo, func() { _ = sh.out.pipe.Close() }, sh.out.closeHolder)
	cmd := exec.Command(r.shell, "--noprofile", "--norc", scriptFile) //nolint:gosec,noctx // our own shell; superviseShell ends it
	cmd.Dir = dir
	cmd.Env = append(slices.Clip(r.opts.Env), runnerVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdout, cmd.Stderr = sh.out.holder, sh.out.holder
	cmd.SysProcAttr = shellAttr()
	sh.process = &process{output: sh.out.output, cmd: cmd, exited: make(chan struct{})}
	if err := r.launch(sh.process, sh.out.out); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = nil // ours to keep now
	r.running.Go(func() { r.superviseShell(ctx, sh) })
	return sh, nil
}

func makeFIFO(name string) error {
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: name, Err: err}
	}
	return nil
}

// openFIFO opens a FIFO for reading. There is no EOF before holder is closed.
func openFIFO(name string) (reader, holder *os.File, err error) {
	if reader, err = os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, nil, err
	}
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0) // it does not block: there is a reader
	if err != nil {
		return nil, nil, errors.Join(err, reader.Close())
	}
	return reader, os.NewFile(uintptr(fd), name), nil
}

func (sh *shell) file(name string) string { return filepath.Join(sh.dir, name) }

// superviseShell waits until sh has exited. It ends sh when sh.stop is closed, or when the
// runner ends.
func (r *Runner) superviseShell(ctx context.Context, sh *shell) {
	select {
	case <-sh.exited:
	case <-sh.stop:
	case <-ctx.Done():
	}
	sh.mu.Lock()
	sh.over = true
	c := sh.current
	sh.mu.Unlock()
	_ = sh.commands.SetWriteDeadline(time.Now()) // there may be no reader left
	read := 0
	if c != nil {
		<-c.sent
		read = c.wrote - sh.unread()
	}
	_ = sh.commands.Close() // an idle shell exits at EOF
	timeout := time.NewTimer(2 * r.opts.Grace)
	defer timeout.Stop()
	select {
	case <-sh.exited:
	case <-timeout.C:
		_ = sh.cmd.Process.Kill()
		<-sh.exited
	}
	_ = sh.script.Close()
	sh.pipe().drainAll() // the status of its command may be there
	sh.close(read)
}

// end makes an idle shell exit.
func (sh *shell) end() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.over = true
	sh.stopOnce.Do(func() { close(sh.stop) })
}

// gone reports whether the shell accepts no more commands.
func (sh *shell) gone() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.over
}

// quote quotes s for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
