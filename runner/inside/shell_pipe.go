package inside

import (
	"os"
	"strconv"
	"sync"
	"time"
)

// shellPipe is a FIFO that a shell prints to.
type shellPipe struct {
	*output
	name   string
	holder *os.File // prevents EOF
	out    *shellOutput

	freed, ended sync.Once
}

// openPipe makes a FIFO for the shell to print to. Nothing reads it yet.
func (sh *shell) openPipe(name string) (*shellPipe, error) {
	if err := makeFIFO(name); err != nil {
		return nil, err
	}
	pipe, holder, err := openFIFO(name)
	if err != nil {
		return nil, err
	}
	p := &shellPipe{output: newOutput(pipe), name: name, holder: holder}
	p.out = &shellOutput{mark: []byte("\x00" + sh.mark), report: func(seq uint64, code int) bool {
		return sh.pipe() == p && sh.report(seq, code) // a status in an old FIFO may come from a failed redirect
	}}
	return p, nil
}

// closeHolder lets the FIFO reach EOF once its last writer has closed it.
func (p *shellPipe) closeHolder() {
	p.freed.Do(func() { _, _ = p.holder.Close(), os.Remove(p.name) })
}

// pipe is the FIFO that the shell prints to.
func (sh *shell) pipe() *shellPipe {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.out
}

// releaseOutput detaches a finished command from the shell's output. If the command may
// have left processes behind, they get lateOutput to print, and the shell gets another
// FIFO.
func (r *Runner) releaseOutput(sh *shell, o *op) {
	was := sh.pipe()
	procs := processes()
	if r.opts.Alone && procs <= sh.procs && !sh.gone() {
		sh.procs = procs // only the shell can print there
		was.out.detach(false)
		return
	}
	moved := !sh.gone() && r.redirectIdle(sh, o)
	if !moved {
		_ = os.MkdirAll(sh.dir, 0o700) // the directory tells the next shell that there was one
		sh.end()
	}
	was.drainAll()
	was.out.detach(moved)
}

// drainAll returns once everything is read that was printed before the shell left the
// FIFO. Other writers get lateOutput.
func (p *shellPipe) drainAll() {
	p.closeHolder()
	p.ended.Do(p.finish)
}

// redirectTimeout is how long an idle shell may take to redirect its output. After it
// the shell is ended: it is not idle, although it said so.
const redirectTimeout = 5 * time.Second

// redirectIdle makes an idle shell print to another FIFO, and reports whether it does.
func (r *Runner) redirectIdle(sh *shell, o *op) bool {
	c, err := sh.begin()
	if err != nil {
		return false
	}
	defer sh.report(c.seq, 0) // nothing waits for it any more
	moves := r.redirect(sh, c, o)
	close(c.sent) // superviseShell may wait for that
	if !moves {
		return false
	}
	timeout := time.NewTimer(redirectTimeout)
	defer timeout.Stop()
	select {
	case <-c.done:
	case <-timeout.C:
		return false
	}
	sh.pipe().out.detach(false)
	sh.procs = processes()
	return true
}

// redirect makes the shell print to another FIFO, and write the status of its last
// command there, as that of c.
func (r *Runner) redirect(sh *shell, c *shellCommand, o *op) bool {
	next, err := sh.openPipe(sh.file("to-" + strconv.FormatUint(c.seq, 10)))
	if err != nil {
		return false
	}
	next.out.attach(&o.output)
	r.drain(next.output, next.out)
	sh.mu.Lock()
	sh.out = next
	sh.mu.Unlock()
	if sh.gone() {
		next.closeHolder()
	}
	script := sh.redirectScript(c, next.name)
	return sh.send(script) == len(script)
}
