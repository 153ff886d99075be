package runner

import "sync"

// linkBudget is how many bytes of frames that nobody has taken yet one runner may
// have its server hold.
const linkBudget = 16 << 20

// budget bounds what is held of a runner's frames. It is taken before a frame is
// read and given back when whoever it is for has taken it.
type budget struct {
	mu   sync.Mutex
	left int           // guarded by mu
	more chan struct{} // guarded by mu; closed when something is given back
}

func newBudget(n int) *budget { return &budget{left: n, more: make(chan struct{})} }

// take waits until there are n bytes, or returns ErrClosed once over is closed.
func (b *budget) take(n int, over <-chan struct{}) error {
	for {
		b.mu.Lock()
		enough, more := b.left >= n, b.more
		if enough {
			b.left -= n
		}
		b.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-more:
		case <-over:
			return ErrClosed
		}
	}
}

func (b *budget) give(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	close(b.more)
	b.more = make(chan struct{})
}
