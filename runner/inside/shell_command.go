package inside

import (
	"strings"

	"golang.org/x/sys/unix"
)

// shellCommand is one command in a shell.
type shellCommand struct {
	seq  uint64
	done chan struct{} // closed once the command has ended
	sent chan struct{} // closed once the command is written to the shell

	wrote int // written before sent is closed and read only after

	// The following fields are written before done is closed and read only after.
	code   int
	unread bool // the shell exited before it started the command
}

// close ends the current command with the exit code of the shell. read is how many bytes
// of the command the shell had read.
func (sh *shell) close(read int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c := sh.current; c != nil {
		c.code, c.unread = sh.exit(), read <= lengthDigits
		close(c.done)
		sh.current = nil
	}
}

// report handles a status, and reports whether it is that of the current command. A
// forged status can only end the command that forged it.
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

// begin registers a new current command.
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

// run sends the command of o to the shell.
func (r *Runner) run(sh *shell, o *op) (*shellCommand, error) {
	c, err := sh.begin()
	if err != nil {
		return nil, err
	}
	sh.pipe().out.attach(&o.output)
	script := sh.commandScript(o, c)
	send := func() {
		defer close(c.sent)
		c.wrote = sh.send(script)
	}
	if len(script) <= maxPipeWrite {
		send()
	} else { // it may not fit in the pipe, and the reader may die
		r.running.Go(send)
	}
	return c, nil
}

// maxPipeWrite is what always fits in an empty pipe.
const maxPipeWrite = 4096

// send writes text to the shell and returns how many bytes were written. It extends the
// shell's script before that runs out of lines.
func (sh *shell) send(text string) int {
	if sh.lines--; sh.lines <= 0 {
		if _, err := sh.script.WriteString(strings.Repeat(nextCommand, scriptLines)); err != nil {
			sh.end()
			return 0
		}
		sh.lines += scriptLines
	}
	n, _ := sh.commands.WriteString(text)
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

// unread is how many bytes the shell has not read yet.
func (sh *shell) unread() int {
	n := 0
	if c, err := sh.commands.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), ioctlUnread) })
	}
	return n
}

// wedged reports whether the shell has read all it was sent. Then its command has ended,
// although its status may be missing.
func (sh *shell) wedged(c *shellCommand) bool {
	select {
	case <-c.sent:
		return sh.unread() == 0
	default:
		return false
	}
}
