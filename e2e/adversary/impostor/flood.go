//go:build linux

package impostor

import (
	"net"
	"os"
	"sync"
	"time"
)

// flood keeps connections open that send nothing: they use up all that the server accepts
// before authentication, so that other clients are not accepted.
type flood struct {
	runner Runner
	stop   chan struct{}
	all    sync.WaitGroup

	mu    sync.Mutex
	there map[*waiting]bool // guarded by mu; those that were let in to wait
}

type waiting struct {
	net.Conn
	since time.Time
	done  chan struct{} // closed once no connection is read any more
}

const (
	// most is a few more than the server accepts.
	most = 72
	// turnedAway is how long a refused connection waits before the next try. There is a
	// new one every millisecond.
	turnedAway = 50 * time.Millisecond
)

func (r Runner) flood() *flood {
	c := &flood{runner: r, stop: make(chan struct{}), there: make(map[*waiting]bool)}
	for range most {
		c.all.Go(c.stand)
	}
	return c
}

// stand holds a connection until it is closed or called, and then opens another.
func (c *flood) stand() {
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		conn, err := net.DialTimeout("unix", c.runner.Socket, time.Second)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		w := &waiting{Conn: conn, since: time.Now(), done: make(chan struct{})}
		c.mu.Lock()
		c.there[w] = true
		c.mu.Unlock()
		_, _ = conn.Read(make([]byte, 1)) // the server sends nothing before the client does
		c.mu.Lock()
		called := !c.there[w]
		delete(c.there, w)
		c.mu.Unlock()
		close(w.done)
		if !called {
			_ = conn.Close()
			time.Sleep(turnedAway)
		}
	}
}

// call returns a connection that was accepted; a refused one is closed at once.
func (c *flood) call() (net.Conn, error) {
	const settled = 20 * time.Millisecond
	for until := time.Now().Add(handshakeTimeout); time.Now().Before(until); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		for w := range c.there {
			if time.Since(w.since) > settled {
				delete(c.there, w)
				c.mu.Unlock()
				_ = w.SetReadDeadline(time.Unix(1, 0))
				<-w.done
				return w.Conn, w.SetDeadline(time.Now().Add(handshakeTimeout))
			}
		}
		c.mu.Unlock()
	}
	return nil, os.ErrDeadlineExceeded
}

func (c *flood) leave() {
	close(c.stop)
	c.mu.Lock()
	for w := range c.there {
		_ = w.Close()
	}
	c.mu.Unlock()
	c.all.Wait()
}
