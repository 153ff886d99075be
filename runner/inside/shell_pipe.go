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
	holder *os.File // keeps it from ending
	shows  *shellOutput

	freed, ended sync.Once
}

// openPipe makes a FIFO for the shell to print to. Nobody reads it yet.
func (sh *shell) openPipe(name string) (*shellPipe, error) {
	if err := makeFIFO(name); err != nil {
		return nil, err
	}
	pipe, holder, err := openFIFO(name)
	if err != nil {
		return nil, err
	}
	p := &shellPipe{output: newOutput(pipe), name: name, holder: holder}
	p.shows = &shellOutput{mark: []byte("\x00" + sh.mark), report: func(seq uint64, code int) bool {
		return sh.pipe() == p && sh.report(seq, code) // elsewhere it may only have failed to move
	}}
	return p, nil
}

// letGo has the FIFO end when nobody else can print to it.
func (p *shellPipe) letGo() {
	p.freed.Do(func() { _, _ = p.holder.Close(), os.Remove(p.name) })
}

// pipe is where the shell prints.
func (sh *shell) pipe() *shellPipe {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.out
}

// reclaim takes back what a command was lent of the shell's output, once there is no
// more to come of it. Whoever the command left behind is given a moment, and the
// shell another place to print.
func (r *Runner) reclaim(sh *shell, o *op) {
	was := sh.pipe()
	procs := processes()
	if r.opts.Alone && procs <= sh.procs && !sh.gone() {
		sh.procs = procs // nobody is left who could print there but the shell
		was.shows.reclaim(false)
		return
	}
	moved := !sh.gone() && r.move(sh, o)
	if !moved {
		_ = os.MkdirAll(sh.dir, 0o700) // by which the next one knows that there was this
		sh.end()
	}
	was.drained()
	was.shows.reclaim(moved)
}

// drained returns once all is read that was printed before the shell left. Whoever
// else can print is given a moment.
func (p *shellPipe) drained() {
	p.letGo()
	p.ended.Do(p.finish)
}

// movePatience is how long an idle shell may take to move. One that is not idle,
// although it has said so, is ended then.
const movePatience = 5 * time.Second

// move has an idle shell print to another FIFO, and reports whether it does.
func (r *Runner) move(sh *shell, o *op) bool {
	c, err := sh.begin()
	if err != nil {
		return false
	}
	defer sh.report(c.seq, 0) // nobody waits for it any more
	moves := r.divert(sh, c, o)
	close(c.sent) // whoever keeps the shell may wait for that, for it may be over
	if !moves {
		return false
	}
	patience := time.NewTimer(movePatience)
	defer patience.Stop()
	select {
	case <-c.done:
	case <-patience.C:
		return false
	}
	sh.pipe().shows.reclaim(false)
	sh.procs = processes()
	return true
}

// divert has the shell print to another FIFO, and say there how its last command
// ended, as if that were c.
func (r *Runner) divert(sh *shell, c *shellCommand, o *op) bool {
	next, err := sh.openPipe(sh.file("to-" + strconv.FormatUint(c.seq, 10)))
	if err != nil {
		return false
	}
	next.shows.lend(&o.output)
	r.drain(next.output, next.shows)
	sh.mu.Lock()
	sh.out = next
	sh.mu.Unlock()
	if sh.gone() {
		next.letGo()
	}
	words := sh.moves(c, next.name)
	return sh.send(words) == len(words)
}
