package runner

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
)

// peer is one connection of a bound runner.
type peer struct {
	conn  DeadlineConn
	wakes chan struct{} // has a buffer of one: there is something to send
	done  chan struct{}
	once  sync.Once
}

func (p *peer) wake() {
	select {
	case p.wakes <- struct{}{}:
	default:
	}
}

func (p *peer) close() {
	p.once.Do(func() {
		close(p.done)
		_ = p.conn.Close()
	})
}

// hangUp closes the sending side and waits at most timeout for the runner to close
// its own.
func (p *peer) hangUp(timeout time.Duration) {
	if p.conn.CloseWrite() != nil {
		return
	}
	select {
	case <-p.done:
	case <-time.After(timeout):
	}
}

// publish listens at the link's path, in place of any other listener.
func (l *Link) publish() error {
	listener, at, err := listen(l.opts.Path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.quiescing {
		return errors.Join(listener.Close(), removeSocket(l.opts.Path, at))
	}
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.listener, l.at = listener, at
	l.running.Go(func() { l.accept(listener) })
	return nil
}

// keepSocket takes the path back if another link replaced its socket. This does not
// go on for ever: of two links the runner keeps the one with the newer epoch and
// refuses the other, which ends. Without it, a link that was refused would leave a
// dead socket behind. A link with a connected runner leaves the path to another link
// that answers there, because the runner will choose between them, and takes it back
// otherwise, because streams need it.
func (l *Link) keepSocket() {
	tick := time.NewTicker(l.opts.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		connected, quiet, inode := l.peer != nil, l.quiescing, l.at
		l.mu.Unlock()
		if quiet {
			continue
		}
		if isAt(l.opts.Path, inode) {
			continue
		}
		if connected && answers(l.opts.Path) {
			continue
		}
		if err := l.publish(); err != nil {
			l.log.Warn("runner socket lost", "error", err)
		}
	}
}

func (l *Link) accept(listener *net.UnixListener) {
	for {
		c, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely
			l.log.Warn("runner not accepted", "error", err)
			select {
			case <-l.done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		select {
		case l.handshakes <- struct{}{}:
			l.running.Go(func() { l.serve(c) })
		default:
			_ = c.Close()
		}
	}
}

// stopAccepting refuses new connections from now on and returns the current one.
func (l *Link) stopAccepting() (*peer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.quiescing = true
	err := removeSocket(l.opts.Path, l.at)
	_ = l.listener.Close()
	for c := range l.handshaking {
		_ = c.Close()
	}
	return l.peer, err
}

// serve handles one connection: the handshake, then frames both ways. The connection
// of a stream is handed to the caller that waits for it.
func (l *Link) serve(c *net.UnixConn) {
	conn := DeadlineConn{c, l.opts.Heartbeat}
	r := bufio.NewReaderSize(conn, 32<<10)
	first, err := l.handshake(conn, r)
	<-l.handshakes
	if err != nil {
		_ = c.Close()
		l.log.Debug("runner turned away", "error", err)
		return
	}
	if first.Kind == KindStream {
		return
	}
	p := &peer{conn: conn, wakes: make(chan struct{}, 1), done: make(chan struct{})}
	defer p.close()
	if !l.adopt(p) {
		return
	}
	defer l.drop(p)
	l.running.Go(func() { l.send(p) })
	buf := new(bytes.Buffer)
	for {
		size := 0
		f, err := readFrame(r, buf, FromRunner(), func(n int) error {
			err := l.budget.acquire(n, p.done)
			if err == nil {
				size = n
			}
			return err
		})
		if err != nil {
			l.budget.release(size)
			l.log.Debug("runner disconnected", "error", err)
			return
		}
		if buf.Cap() > 2*maxOutput {
			buf = new(bytes.Buffer) // reuse pays only for heartbeats and output
		}
		sanitize(&f)
		l.deliver(f, size)
	}
}

// send writes requests and heartbeats to p until it is closed.
func (l *Link) send(p *peer) {
	defer p.close()
	heartbeat, err := AppendFrame(nil, Frame{Kind: KindHeartbeat})
	if err != nil {
		return
	}
	tick := time.NewTicker(l.opts.Heartbeat)
	defer tick.Stop()
	for {
		if b := l.takeUnsent(p); len(b) > 0 {
			if _, err := p.conn.Write(b); err != nil {
				return
			}
		}
		select {
		case <-p.done:
			return
		case <-p.wakes:
		case <-tick.C:
			if _, err := p.conn.Write(heartbeat); err != nil {
				return
			}
		}
	}
}

// handshake authenticates a connection by its secret and returns its first frame. A
// runner is bound to the link's fence; a stream goes to the caller that requested it.
func (l *Link) handshake(c DeadlineConn, r *bufio.Reader) (Frame, error) {
	if !l.trackHandshake(c) {
		return Frame{}, ErrClosed
	}
	defer l.untrackHandshake(c)
	// This bounds the whole handshake: each read alone would restart its deadline.
	late := time.AfterFunc(maxMissedHeartbeats*l.opts.Heartbeat, func() { _ = c.Close() })
	defer late.Stop()
	f, err := l.identify(r)
	if err != nil {
		return f, err
	}
	if f.Kind == KindStream {
		return f, l.join(c, r, f.StreamID, late)
	}
	return f, l.bind(c, r)
}

// identify reads the first frame of a connection and checks its secret.
func (l *Link) identify(r *bufio.Reader) (Frame, error) {
	f, err := ReadFrame(r, FromUnauthenticated())
	if err != nil {
		return Frame{}, err
	}
	hello := f.Hello
	if f.Kind != KindHello && f.Kind != KindStream || hello == nil {
		return Frame{}, fmt.Errorf("expected a hello: %w", dormouse.ErrInvalid)
	}
	if subtle.ConstantTimeCompare([]byte(hello.Secret), []byte(l.opts.Secret)) != 1 {
		l.log.Warn("runner refused: wrong secret")
		return Frame{}, fmt.Errorf("wrong secret: %w", dormouse.ErrInvalid)
	}
	if hello.Protocol != Protocol {
		l.log.Warn("runner refused: wrong protocol", "ours", Protocol, "theirs", hello.Protocol)
		return Frame{}, fmt.Errorf("wrong protocol: %w", dormouse.ErrInvalid)
	}
	return f, nil
}

// bind sends the runner the link's fence and waits until it is accepted.
func (l *Link) bind(c DeadlineConn, r *bufio.Reader) error {
	b, err := AppendFrame(nil, Frame{Kind: KindBind, Fence: &l.opts.Fence})
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	f, err := ReadFrame(r, FromUnauthenticated())
	if err != nil {
		return err
	}
	if f.Kind == KindRefused && f.Refusal == RefusedStale && errors.Is(l.confirmStale(), ErrStale) {
		l.End(ErrStale)
	}
	if f.Kind != KindBound {
		return fmt.Errorf("bind answered by %.40q %.40q: %w", f.Kind, f.Refusal, dormouse.ErrInvalid)
	}
	l.log.Debug("runner connected")
	return nil
}

// trackHandshake makes the link close c if it ends during the handshake.
func (l *Link) trackHandshake(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.quiescing {
		return false
	}
	l.handshaking[c] = true
	return true
}

func (l *Link) untrackHandshake(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.handshaking, c)
}
