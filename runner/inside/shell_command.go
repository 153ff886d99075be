package inside

import (
	"strings"

	"golang.org/x/sys/unix"
)

// shellCommand is one command in a shell.
type shellCommand struct {
	seq  uint64
	done chan struct{} // closed once the command is over
	sent chan struct{} // closed once the shell is sent all it will be

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
		c.code, c.unread = sh.exit(), read <= lengthDigits
		close(c.done)
		sh.current = nil
	}
}

// report takes in an exit code, and says whether that is of the command that runs.
// One that is forged ends that command, and no other.
func (sh *shell) report(seq uint64, code int) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.current
	if c == nil || c.seq != seq {
		return false
	}
	c.code = code
	close(c.done)
	sh.current = nil
	return true
}

// begin makes what follows the newest command.
func (sh *shell) begin() (*shellCommand, error) {
	sh.seq++
	c := &shellCommand{seq: sh.seq, done: make(chan struct{}), sent: make(chan struct{})}
	if sh.procs == 0 {
		sh.procs = processes()
	}
	if !sh.take(c) {
		return nil, errShellEnded
	}
	return c, nil
}

// run has the shell begin a command.
func (r *Runner) run(sh *shell, o *op) (*shellCommand, error) {
	c, err := sh.begin()
	if err != nil {
		return nil, err
	}
	sh.pipe().shows.lend(&o.output)
	words := sh.words(o, c)
	send := func() {
		defer close(c.sent)
		c.wrote = sh.send(words)
	}
	if len(words) <= quickWords {
		send()
	} else { // it does not fit in the pipe, and who reads it may die
		r.running.Go(send)
	}
	return c, nil
}

// quickWords is what fits in an empty pipe for certain.
const quickWords = 4096

// send has the shell read words, and returns how much of them it was sent. The
// script goes on for longer than it needs.
func (sh *shell) send(words string) int {
	if sh.lines--; sh.lines <= 0 {
		if _, err := sh.script.WriteString(strings.Repeat(nextCommand, scriptLines)); err != nil {
			sh.end()
			return 0
		}
		sh.lines += scriptLines
	}
	n, _ := sh.commands.WriteString(words)
	return n
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

// left is how much of what it was sent the shell has not read.
func (sh *shell) left() int {
	n := 0
	if c, err := sh.commands.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), ioctlUnread) })
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
