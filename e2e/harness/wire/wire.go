// Package wire is a connection between a server and something it depends on, which a test
// can refuse, cut, delay, or cut at a given word.
package wire

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Wire carries connections from an address of its own to another one.
type Wire struct {
	network, to string
	addr        string
	running     sync.WaitGroup
	watch       atomic.Pointer[func(Piece) bool]

	mu       sync.Mutex
	listener net.Listener   // guarded by mu; nil while everyone is refused
	state    state          // guarded by mu
	moved    chan struct{}  // guarded by mu; closed when state changes
	open     map[*pair]bool // guarded by mu
}

// state is what happens to what is carried.
type state int

const (
	sound state = iota
	held        // nothing arrives, and no end is told
	down
)

// Piece is some bytes on their way.
type Piece struct {
	// Back says that they come from the far end.
	Back bool
	Data []byte
}

// pair is one connection, both ends of it.
type pair struct{ near, far net.Conn }

// cut breaks the connection. The far end still receives what was sent to it, and the
// near end gets a reset.
func (p *pair) cut() {
	if t, ok := p.near.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_, _ = p.near.Close(), p.far.Close()
}

// New starts carrying to an address, which need not be there yet.
func New(network, to string) (*Wire, error) {
	w := &Wire{network: network, to: to, addr: "127.0.0.1:0", moved: make(chan struct{}), open: make(map[*pair]bool)}
	if err := w.listen(); err != nil {
		return nil, fmt.Errorf("lay a wire to %s: %w", to, err)
	}
	w.addr = w.listener.Addr().String()
	return w, nil
}

// listen takes connections, at the same address every time.
func (w *Wire) listen() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", w.addr)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener = l
	w.running.Go(func() { w.accept(l) })
	return nil
}

// Addr is where to connect to.
func (w *Wire) Addr() string { return w.addr }

// Close ends everything.
func (w *Wire) Close() {
	w.Refuse()
	w.running.Wait()
}

// Refuse breaks every connection and refuses new ones.
func (w *Wire) Refuse() {
	w.set(down)
	w.mu.Lock()
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
	w.mu.Unlock()
	w.Cut()
}

// Hold lets nothing through in either direction and closes no connection, as when a cable
// is pulled.
func (w *Wire) Hold() { w.set(held) }

// Heal carries again, and first what was held up.
func (w *Wire) Heal() error {
	w.set(sound)
	w.mu.Lock()
	listening := w.listener != nil
	w.mu.Unlock()
	if listening {
		return nil
	}
	if err := w.listen(); err != nil {
		return fmt.Errorf("mend the wire to %s: %w", w.to, err)
	}
	return nil
}

// Cut breaks every connection there is.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.open {
		p.cut()
	}
}

// Watch has f look at every piece before it is passed on; if f returns true the
// piece is passed on and then its connection is cut, so that no answer to it
// comes. A nil f looks at nothing.
func (w *Wire) Watch(f func(Piece) bool) {
	if f == nil {
		w.watch.Store(nil)
		return
	}
	w.watch.Store(&f)
}

func (w *Wire) set(s state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
	close(w.moved)
	w.moved = make(chan struct{})
}

func (w *Wire) accept(l net.Listener) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.carry(near) })
	}
}

// carry passes on both directions of one connection until either ends.
func (w *Wire) carry(near net.Conn) {
	defer func() { _ = near.Close() }()
	if !w.pass() {
		return
	}
	far, err := new(net.Dialer).DialContext(context.Background(), w.network, w.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	p := &pair{near, far}
	w.mu.Lock()
	w.open[p] = true
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.copy(p, false) })
	both.Go(func() { w.copy(p, true) })
	both.Wait()
	w.mu.Lock()
	delete(w.open, p)
	w.mu.Unlock()
}

// copy passes on one direction.
func (w *Wire) copy(p *pair, back bool) {
	from, to := p.near, p.far
	if back {
		from, to = to, from
	}
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			watch := w.watch.Load()
			last := watch != nil && (*watch)(Piece{Back: back, Data: buf[:n]})
			if !w.pass() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			if last {
				p.cut()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while everything is held up, and reports whether to go on.
func (w *Wire) pass() bool {
	for {
		w.mu.Lock()
		s, moved := w.state, w.moved
		w.mu.Unlock()
		if s != held {
			return s == sound
		}
		<-moved
	}
}
