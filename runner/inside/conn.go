package inside

import (
	"bufio"
	"net"
	"os"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/runner"
)

// The token bucket for output frames: its size in bytes, and its refill rate in bytes
// per second. Output beyond it is dropped here and still in the result.
const (
	outBurst = 16 << 20
	outRate  = 4 << 20
)

// outDepth bounds the frames that are buffered for a slow server. Output beyond it is
// dropped; answers block.
const outDepth = 64

// conn is one connection to a server.
type conn struct {
	c    runner.DeadlineConn
	r    *bufio.Reader
	at   os.FileInfo // the socket file it was dialled at
	out  chan message
	last chan runner.Frame // has a buffer of one: the frame to send before closing
	done chan struct{}
	once sync.Once

	fence runner.Fence // what it is bound to; set before the first request

	mu    sync.Mutex
	waits map[uint64]chan struct{} // guarded by mu; closed when detached
	spent float64                  // guarded by mu; tokens used and not refilled yet
	since time.Time                // guarded by mu; when spent was last refilled
}

func newConn(c *net.UnixConn, at os.FileInfo, heartbeat time.Duration) *conn {
	k := &conn{
		c:     runner.DeadlineConn{UnixConn: c, Heartbeat: heartbeat},
		at:    at,
		out:   make(chan message, outDepth),
		last:  make(chan runner.Frame, 1),
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

// closeStale tells the server that a newer one is bound, and closes the connection.
func (k *conn) closeStale() {
	k.closeAfter(runner.Frame{Kind: runner.KindRefused, Refusal: runner.RefusedStale})
}

// closeAfter closes the connection once last is sent.
func (k *conn) closeAfter(last runner.Frame) {
	select {
	case k.last <- last:
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
	soon  bool // it may be delayed to be sent with others
}

const (
	// maxBatch is the size at which a batch is sent without delay.
	maxBatch = 256 << 10
	// batchDelay is how long a message may be delayed. In a sandbox a write that wakes
	// the server costs more than a short command, so the start and the output of a
	// command are sent together with its result.
	batchDelay = 2 * time.Millisecond
)

// send writes answers, output and heartbeats until the connection is closed.
func (k *conn) send() {
	defer k.close()
	tick := time.NewTicker(k.c.Heartbeat)
	defer tick.Stop()
	var waiting []byte
	late := time.NewTimer(batchDelay)
	defer late.Stop()
	late.Stop()
	for {
		var err error
		select {
		case <-k.done:
			return
		case last := <-k.last:
			_, _ = k.c.Write(waiting)
			_ = k.write(last)
			return
		case m := <-k.out:
			first := len(waiting) == 0
			switch waiting, m.soon = k.batch(waiting, m); {
			case !m.soon:
				late.Stop()
				_, err = k.c.Write(waiting)
				waiting = nil
			case first:
				late.Reset(batchDelay)
			}
		case <-late.C:
			_, err = k.c.Write(waiting)
			waiting = nil
		case <-tick.C:
			err = k.write(runner.Frame{Kind: runner.KindHeartbeat})
		}
		if err != nil {
			return
		}
	}
}

// batch appends a message and those buffered behind it to waiting, and reports whether
// all of them may be delayed further.
func (k *conn) batch(waiting []byte, m message) (_ []byte, soon bool) {
	soon = true
	for {
		waiting = append(waiting, m.frame...)
		soon = soon && m.soon
		if len(waiting) >= maxBatch {
			return waiting, false
		}
		select {
		case m = <-k.out:
		default:
			return waiting, soon
		}
	}
}

// answer sends a as the reply to f.
func (k *conn) answer(f, a runner.Frame) { k.reply(f, a, false) }

func (k *conn) reply(f, a runner.Frame, soon bool) {
	a.Kind, a.ID = runner.KindReply, f.ID
	b, err := runner.AppendFrame(nil, a)
	if err != nil {
		why, detail := runner.RefusalOf(err)
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

// sendOutput sends output for a wait, or drops it if the server is too slow.
func (k *conn) sendOutput(id uint64, out []byte) {
	if len(out) == 0 || len(k.out) == cap(k.out) || !k.allowOutput(len(out)) {
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

// allowOutput takes n bytes from the token bucket if it has them.
func (k *conn) allowOutput(n int) bool {
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

// attach registers a wait. The channel is closed when the wait is cancelled.
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
