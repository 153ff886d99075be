package inside

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// viewerDepth is how many pieces of output are buffered for a viewer, and
	// viewerTimeout how long the terminal waits for one whose buffer is full.
	viewerDepth   = 16
	viewerTimeout = 5 * time.Second
)

// viewer is a stream attached to a terminal.
type viewer struct {
	terminal *terminal
	in       *os.File    // the terminal, as a descriptor of its own
	first    []byte      // the history
	out      chan []byte // closed once the terminal has ended
	gone     chan struct{}
	once     sync.Once
}

// attach adds a viewer, which gets the history first.
func (t *terminal) attach() (*viewer, error) {
	in, err := dupFile(t.master)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	v := &viewer{terminal: t, in: in, out: make(chan []byte, viewerDepth), gone: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	v.first = slices.Clone(t.history)
	if t.viewers == nil {
		close(v.out)
		return v, nil
	}
	t.viewers[v] = true
	return v, nil
}

func (v *viewer) leave() { v.once.Do(func() { close(v.gone) }) }

func (v *viewer) release() {
	v.leave()
	_ = v.in.Close()
	v.terminal.mu.Lock()
	defer v.terminal.mu.Unlock()
	delete(v.terminal.viewers, v)
}

// serve copies output to c, and input from c.
func (v *viewer) serve(ctx context.Context, c *net.UnixConn) {
	stop := context.AfterFunc(ctx, v.leave)
	defer stop()
	var rest sync.WaitGroup
	rest.Go(func() {
		v.terminal.active.relay(v.in, c)
		waitHangup(c)
		v.leave()
	})
	rest.Go(func() {
		<-v.gone
		_ = c.Close()
		_ = v.in.Close()
	})
	v.show(c)
	v.leave()
	rest.Wait()
}

func (v *viewer) show(c *net.UnixConn) {
	if _, err := c.Write(v.first); err != nil {
		return
	}
	v.first = nil
	for {
		select {
		case b, more := <-v.out:
			if !more {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		case <-v.gone:
			return
		}
	}
}
