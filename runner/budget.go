package runner

import "sync"

// linkBudget is how many bytes of unread frames of one runner the server keeps.
const linkBudget = 16 << 20

// budget bounds the memory that a runner's frames take. The bytes of a frame are
// acquired before it is read and released once its caller has it.
type budget struct {
	mu   sync.Mutex
	left int           // guarded by mu
	more chan struct{} // guarded by mu; closed when bytes are released
}

func newBudget(n int) *budget { return &budget{left: n, more: make(chan struct{})} }

// acquire waits until n bytes are free, or returns ErrClosed once over is closed.
func (b *budget) acquire(n int, over <-chan struct{}) error {
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

func (b *budget) release(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	close(b.more)
	b.more = make(chan struct{})
}
