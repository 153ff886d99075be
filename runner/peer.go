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
	conn Steady
	kick chan struct{} // holds one: there is something to send
	done chan struct{}
	once sync.Once
}

func (p *peer) nudge() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *peer) close() {
	p.once.Do(func() {
		close(p.done)
		_ = p.conn.Close()
	})
}

// hangUp tells the runner that nothing more will come and waits for it to close
// its end, but not for long.
func (p *peer) hangUp(patience time.Duration) {
	if p.conn.CloseWrite() != nil {
		return
	}
	select {
	case <-p.done:
	case <-time.After(patience):
	}
}

// publish listens at the link's path, which then is ours.
func (l *Link) publish() error {
	listener, at, err := listen(l.opts.Path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.quiet {
		return errors.Join(listener.Close(), removeSocket(l.opts.Path, at))
	}
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.listener, l.at = listener, at
	l.running.Go(func() { l.accept(listener) })
	return nil
}

// keepPlace takes the path back if another link put itself there. Of two links
// the runner keeps the one with the newer epoch and tells the other to stop, so
// this ends; without it a link that was refused would leave a dead socket
// behind for ever. A link that has its runner leaves the path to whoever answers
// there, for the runner to tell, but needs it back for streams.
func (l *Link) keepPlace() {
	tick := time.NewTicker(l.opts.Beat)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		connected, quiet, ours := l.peer != nil, l.quiet, l.at
		l.mu.Unlock()
		if quiet {
			continue
		}
		if isAt(l.opts.Path, ours) {
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
		case l.shaking <- struct{}{}:
			l.running.Go(func() { l.serve(c) })
		default:
			_ = c.Close()
		}
	}
}

// hush lets no runner in any more, and returns the one that is.
func (l *Link) hush() (*peer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.quiet = true
	err := removeSocket(l.opts.Path, l.at)
	_ = l.listener.Close()
	for c := range l.strays {
		_ = c.Close()
	}
	return l.peer, err
}

// serve sees one connection through: handshake, then frames both ways. That of
// a stream is handed to whoever waits for it.
func (l *Link) serve(c *net.UnixConn) {
	conn := Steady{c, l.opts.Beat}
	r := bufio.NewReaderSize(conn, 32<<10)
	first, err := l.handshake(conn, r)
	<-l.shaking
	if err != nil {
		_ = c.Close()
		l.log.Debug("runner turned away", "error", err)
		return
	}
	if first.Kind == KindStream {
		return
	}
	p := &peer{conn: conn, kick: make(chan struct{}, 1), done: make(chan struct{})}
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
			err := l.budget.take(n, p.done)
			if err == nil {
				size = n
			}
			return err
		})
		if err != nil {
			l.budget.give(size)
			l.log.Debug("runner disconnected", "error", err)
			return
		}
		if buf.Cap() > 2*maxOutput {
			buf = new(bytes.Buffer) // only beats and output are so many that it helps
		}
		tame(&f)
		l.deliver(f, size)
	}
}

// send writes requests and beats to p until it is closed.
func (l *Link) send(p *peer) {
	defer p.close()
	beat, err := AppendFrame(nil, Frame{Kind: KindBeat})
	if err != nil {
		return
	}
	tick := time.NewTicker(l.opts.Beat)
	defer tick.Stop()
	for {
		if b := l.unsent(p); len(b) > 0 {
			if _, err := p.conn.Write(b); err != nil {
				return
			}
		}
		select {
		case <-p.done:
			return
		case <-p.kick:
		case <-tick.C:
			if _, err := p.conn.Write(beat); err != nil {
				return
			}
		}
	}
}

// handshake lets in whoever knows the secret, and returns its first frame. A
// runner takes the link's fence, a stream goes to the one who asked for it.
func (l *Link) handshake(c Steady, r *bufio.Reader) (Frame, error) {
	if !l.hold(c) {
		return Frame{}, ErrClosed
	}
	defer l.release(c)
	// A stranger has only so long in all, however busy it keeps us.
	late := time.AfterFunc(silentBeats*l.opts.Beat, func() { _ = c.Close() })
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

// identify reads the first frame of a connection and checks who sent it.
func (l *Link) identify(r *bufio.Reader) (Frame, error) {
	f, err := ReadFrame(r, FromStranger())
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

// Bind has the runner take the link's fence.
func (l *Link) bind(c Steady, r *bufio.Reader) error {
	b, err := AppendFrame(nil, Frame{Kind: KindBind, Fence: &l.opts.Fence})
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	f, err := ReadFrame(r, FromStranger())
	if err != nil {
		return err
	}
	if f.Kind == KindRefused && f.Refusal == RefusedStale && errors.Is(l.outrun(), ErrStale) {
		l.End(ErrStale)
	}
	if f.Kind != KindBound {
		return fmt.Errorf("bind answered by %.40q %.40q: %w", f.Kind, f.Refusal, dormouse.ErrInvalid)
	}
	l.log.Debug("runner connected")
	return nil
}

// hold makes the end of the link end the handshake on c too.
func (l *Link) hold(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.quiet {
		return false
	}
	l.strays[c] = true
	return true
}

func (l *Link) release(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.strays, c)
}
