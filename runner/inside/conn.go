package inside

import (
	"bufio"
	"net"
	"os"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// A server is shown at most so much output: so many bytes at once, and so many in
// a second after that. Whoever prints more is still heard in the result.
const (
	outBurst = 16 << 20
	outRate  = 4 << 20
)

// outDepth bounds the frames that wait for a slow server. Output beyond it is
// dropped; answers wait.
const outDepth = 64

// conn is one connection to a server.
type conn struct {
	c    runner.Steady
	r    *bufio.Reader
	at   os.FileInfo // the socket file it was dialled at
	out  chan message
	bye  chan runner.Frame // holds one: the last to be sent
	done chan struct{}
	once sync.Once

	fence runner.Fence // what it is bound to; set before anything is asked

	mu    sync.Mutex
	waits map[uint64]chan struct{} // guarded by mu; closed when detached
	spent float64                  // guarded by mu; bytes of output shown beyond the rate
	since time.Time                // guarded by mu; when spent was last looked at
}

func newConn(c *net.UnixConn, at os.FileInfo, beat time.Duration) *conn {
	k := &conn{
		c:     runner.Steady{UnixConn: c, Beat: beat},
		at:    at,
		out:   make(chan message, outDepth),
		bye:   make(chan runner.Frame, 1),
		done:  make(chan struct{}),
		waits: make(map[uint64]chan struct{}),
	}
	k.r = bufio.NewReaderSize(k.c, 32<<10)
	return k
}

func (k *conn) close() {
	k.once.Do(func() {
		close(k.done)
		_ = k.c.Close()
	})
}

// dismiss tells the server that another one is obeyed now, and hangs up.
func (k *conn) dismiss() {
	k.leave(runner.Frame{Kind: runner.KindRefused, Refusal: runner.RefusedStale})
}

// leave hangs up once last is sent.
func (k *conn) leave(last runner.Frame) {
	select {
	case k.bye <- last:
	default:
	}
}

func (k *conn) read() (runner.Frame, error) { return runner.ReadFrame(k.r, runner.FromServer()) }

func (k *conn) write(f runner.Frame) error {
	b, err := runner.AppendFrame(nil, f)
	if err != nil {
		return err
	}
	_, err = k.c.Write(b)
	return err
}

// message is a frame to be sent.
type message struct {
	frame []byte
	soon  bool // it may wait a moment for others
}

const (
	// gathered bounds what is sent at once.
	gathered = 256 << 10
	// moment is how long what may wait does wait. In a sandbox it costs more to send
	// something, and have the server woken for it, than to run a short command: that
	// it was begun and what it printed is sent with how it ended.
	moment = 2 * time.Millisecond
)

// send writes answers, output and beats until the connection is closed.
func (k *conn) send() {
	defer k.close()
	tick := time.NewTicker(k.c.Beat)
	defer tick.Stop()
	var waiting []byte
	late := time.NewTimer(moment)
	defer late.Stop()
	late.Stop()
	for {
		var err error
		select {
		case <-k.done:
			return
		case last := <-k.bye:
			_, _ = k.c.Write(waiting)
			_ = k.write(last)
			return
		case m := <-k.out:
			first := len(waiting) == 0
			switch waiting, m.soon = k.gather(waiting, m); {
			case !m.soon:
				late.Stop()
				_, err = k.c.Write(waiting)
				waiting = nil
			case first:
				late.Reset(moment)
			}
		case <-late.C:
			_, err = k.c.Write(waiting)
			waiting = nil
		case <-tick.C:
			err = k.write(runner.Frame{Kind: runner.KindBeat})
		}
		if err != nil {
			return
		}
	}
}

// gather adds a message and those behind it to what waits, and says whether all of
// it may wait on.
func (k *conn) gather(waiting []byte, m message) (_ []byte, soon bool) {
	soon = true
	for {
		waiting = append(waiting, m.frame...)
		soon = soon && m.soon
		if len(waiting) >= gathered {
			return waiting, false
		}
		select {
		case m = <-k.out:
		default:
			return waiting, soon
		}
	}
}

// answer sends a to the one who asked f.
func (k *conn) answer(f, a runner.Frame) { k.reply(f, a, false) }

func (k *conn) reply(f, a runner.Frame, soon bool) {
	a.Kind, a.ID = runner.KindReply, f.ID
	b, err := runner.AppendFrame(nil, a)
	if err != nil {
		why, detail := runner.Refuse(err)
		b, err = runner.AppendFrame(nil, runner.Frame{Kind: runner.KindReply, ID: f.ID, Refusal: why, Detail: detail})
	}
	if err != nil {
		return
	}
	select {
	case k.out <- message{b, soon}:
	case <-k.done:
	}
}

// offer sends output to whoever waits, unless they are too far behind.
func (k *conn) offer(id uint64, out []byte) {
	if len(out) == 0 || len(k.out) == cap(k.out) || !k.affords(len(out)) {
		return
	}
	b, err := runner.AppendFrame(nil, runner.Frame{Kind: runner.KindOutput, ID: id, Output: out})
	if err != nil {
		return
	}
	select {
	case k.out <- message{b, true}:
	default:
	}
}

// affords reports whether n more bytes of output may be shown now.
func (k *conn) affords(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.spent = max(0, k.spent-now.Sub(k.since).Seconds()*outRate)
	k.since = now
	if k.spent+float64(n) > outBurst {
		return false
	}
	k.spent += float64(n)
	return true
}

// attach notes a wait; the channel is closed when nobody waits any more.
func (k *conn) attach(id uint64) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone := make(chan struct{})
	k.waits[id] = gone
	return gone
}

func (k *conn) detach(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if gone, ok := k.waits[id]; ok {
		delete(k.waits, id)
		close(gone)
	}
}
