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
	// viewerDepth is how many pieces a viewer may be behind before the terminal
	// waits for it, and viewerPatience for how long.
	viewerDepth    = 16
	viewerPatience = 5 * time.Second
)

// viewer is a stream attached to a terminal.
type viewer struct {
	terminal *terminal
	in       *os.File    // the terminal, to be closed without the others'
	first    []byte      // what was printed before it came
	out      chan []byte // closed once the terminal is over
	gone     chan struct{}
	once     sync.Once
}

// attach lets one more see the terminal, from what was printed last on.
func (t *terminal) attach() (*viewer, error) {
	in, err := another(t.master)
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

// carry shows the terminal to c and types what c says.
func (v *viewer) carry(ctx context.Context, c *net.UnixConn) {
	stop := context.AfterFunc(ctx, v.leave)
	defer stop()
	var rest sync.WaitGroup
	rest.Go(func() {
		v.terminal.active.copy(v.in, c)
		hungUp(c)
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
