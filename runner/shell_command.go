//go:build linux

package runner

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// shellCommand is one command in a shell.
type shellCommand struct {
	seq    uint64
	fifo   string // where it prints
	out    output
	holder *os.File      // keeps out open until the command is over
	done   chan struct{} // closed once the command is over
	sent   chan struct{} // closed once the shell is sent all it will be

	// Of what was sent, the shell reads line to learn that there is a command.
	line  int
	wrote int // written before sent is closed and read only after

	// What follows is written before done is closed and read only after.
	code   int
	unread bool // the shell ended and had not begun
}

// close says how the last command ended, if the shell did not: with the shell,
// which had read so much of what it was sent.
func (sh *shell) close(read int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c := sh.current; c != nil {
		c.code, c.unread = sh.exit(), read <= c.line
		close(c.done)
		sh.current = nil
	}
}

// report takes in an exit code. One that is forged ends the command that runs,
// and no other.
func (sh *shell) report(seq uint64, code int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c := sh.current; c != nil && c.seq == seq {
		c.code = code
		close(c.done)
		sh.current = nil
	}
}

// run has the shell begin a command.
func (r *Runner) run(sh *shell, o *op) (*shellCommand, error) {
	sh.seq++
	c := &shellCommand{seq: sh.seq, fifo: sh.spare, done: make(chan struct{}), sent: make(chan struct{})}
	if sh.spare = ""; c.fifo == "" {
		c.fifo = sh.file(strconv.FormatUint(c.seq, 10))
		if err := makeFIFO(c.fifo); err != nil {
			return nil, sh.withoutDir(err)
		}
	}
	pipe, holder, err := openFIFO(c.fifo)
	if err != nil {
		return nil, sh.withoutDir(err)
	}
	c.out, c.holder = newOutput(pipe), holder
	r.drain(&c.out, &o.output)
	line, rest := sh.words(o, c)
	c.line = len(line)
	if !sh.take(c) {
		c.close(sh)
		return nil, errShellEnded
	}
	// A long command does not fit in the pipe, and who reads it may die.
	r.running.Go(func() {
		defer close(c.sent)
		c.wrote, _ = sh.script.WriteString(line + rest)
	})
	return c, nil
}

// withoutDir ends a shell whose directory somebody has removed.
func (sh *shell) withoutDir(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sh.end()
	return errShellEnded
}

func (sh *shell) take(c *shellCommand) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.over {
		return false
	}
	sh.current = c
	return true
}

// close lets go of what a command printed. Its FIFO is of use to the next one if
// nobody prints to it any more.
func (c *shellCommand) close(sh *shell) {
	_ = c.holder.Close()
	c.out.finish()
	select {
	case <-c.out.eof:
		sh.spare = c.fifo
	default:
		_ = os.Remove(c.fifo)
	}
}

// left is how much of what it was sent the shell has not read.
func (sh *shell) left() int {
	n := 0
	if c, err := sh.script.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}

// wedged reports whether the shell has read all it was sent, and so is done
// with its command, although it may not have said so.
func (sh *shell) wedged(c *shellCommand) bool {
	select {
	case <-c.sent:
		return sh.left() == 0
	default:
		return false
	}
}

// now is the present in the hundredths of a second that processes are born in.
func (sh *shell) now() uint64 {
	b := make([]byte, 64)
	n, _ := sh.clock.ReadAt(b, 0)
	seconds, _, _ := strings.Cut(string(b[:n]), " ")
	now, _ := strconv.ParseUint(strings.ReplaceAll(seconds, ".", ""), 10, 64)
	return now
}
