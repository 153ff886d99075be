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

// errShellEnded: the shell was over before it read the command.
var errShellEnded = errors.New("the shell ended before it began the command")

// shell is a bash that lives on from command to command.
//
// It has a directory of its own with a script that never ends, so that its commands
// run at the top level, as if they were typed. Each line of it reads a command from
// a FIFO and runs it. The script is a file because a script in a pipe is read byte
// by byte; in a sandbox what counts is the number of system calls. What the shell
// and its commands print goes to another FIFO, and how each ended is said there too,
// after what it printed. It is changed for a new one when a command may have left
// somebody behind who prints, or has made the shell print elsewhere.
type shell struct {
	*process               // what it prints goes where it printed first
	dir      string        // its FIFOs and its script
	mark     string        // what it says before an exit code
	script   *os.File      // to add to
	commands *os.File      // to write to
	stop     chan struct{} // closed to end it
	stopOnce sync.Once

	// What follows belongs to the op whose turn it is.
	seq   uint64 // the newest command
	lines int    // how many more commands the script reads
	procs uint64 // how many processes there were when nobody else printed there

	mu      sync.Mutex
	out     *shellPipe    // guarded by mu; where it prints
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
	if _, err := sh.commands.WriteString(sh.prologue(r.opts.Workspace)); err != nil {
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
	sh = &shell{dir: dir, mark: rand.Text(), stop: make(chan struct{})}
	if sh.script, err = os.OpenFile(sh.file(scriptFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	undo = append(undo, func() { _ = sh.script.Close() })
	if _, err := sh.script.WriteString(firstLine + strings.Repeat(nextCommand, scriptLines)); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	sh.lines = scriptLines - 1 // it must not come to the end
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
	undo = append(undo, func() { _ = sh.out.pipe.Close() }, sh.out.letGo)
	cmd := exec.Command(r.shell, "--noprofile", "--norc", scriptFile) //nolint:gosec,noctx // our own shell; keepShell ends it
	cmd.Dir = dir
	cmd.Env = append(slices.Clip(r.opts.Env), runnerVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdout, cmd.Stderr = sh.out.holder, sh.out.holder
	cmd.SysProcAttr = shellAttr()
	sh.process = &process{output: sh.out.output, cmd: cmd, exited: make(chan struct{})}
	if err := r.launch(sh.process, sh.out.shows); err != nil {
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
	_ = sh.commands.SetWriteDeadline(time.Now()) // nobody may be left to read
	read := 0
	if c != nil {
		<-c.sent
		read = c.wrote - sh.left()
	}
	_ = sh.commands.Close() // what it reads ends, and with it an idle shell
	patience := time.NewTimer(2 * r.opts.Grace)
	defer patience.Stop()
	select {
	case <-sh.exited:
	case <-patience.C:
		_ = sh.cmd.Process.Kill()
		<-sh.exited
	}
	_ = sh.script.Close()
	sh.pipe().drained() // it may have said how its command ended
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
