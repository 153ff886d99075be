package session_test

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// boxes is a driver whose sandboxes outlive servers. A command "effect NAME"
// counts, "sleep D" takes its time.
type boxes struct {
	mu      sync.Mutex
	boxes   map[boxName]*fakeBox
	effects map[string]int
	broken  error
	slow    time.Duration // what a sandbox takes to start
	created int
	calls   int          // of the driver
	mute    int          // how many links to come reach no runner
	deaf    bool         // no runner answers
	usage   runner.Usage // what goes on in each
	removed []dormouse.SessionID
}

// boxName is what a sandbox is found by again.
type boxName struct {
	Session    dormouse.SessionID
	Generation uint64
}

func (b *boxes) KeepsWorkspace() bool { return true }

// Remove ends whatever a session still has.
func (b *boxes) Remove(_ context.Context, f runner.Fence) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.boxes {
		if name.Session == f.Session {
			b.end(name)
			delete(b.boxes, name)
		}
	}
	b.removed = append(b.removed, f.Session)
	return nil
}

func (b *boxes) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.deaf {
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return nil, context.Cause(ctx)
	}
	if b.slow > 0 {
		b.mu.Unlock()
		time.Sleep(b.slow)
		b.mu.Lock()
	}
	if b.broken != nil {
		return nil, b.broken
	}
	b.created++
	name := boxName{spec.Fence.Session, spec.Fence.Generation}
	box := &fakeBox{home: b, name: name, epoch: spec.Fence.Epoch, ops: make(map[dormouse.OpID]*fakeOp), gone: make(chan struct{})}
	b.boxes[name] = box
	b.mute--
	return &fakeLink{fakeBox: box, epoch: spec.Fence.Epoch, mute: b.mute >= 0, cut: make(chan struct{})}, nil
}

func (b *boxes) Attach(ctx context.Context, h sandbox.Handle, f runner.Fence) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.deaf {
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return nil, context.Cause(ctx)
	}
	box := b.boxes[boxName{f.Session, f.Generation}]
	if box == nil || box.dead {
		return nil, sandbox.ErrGone
	}
	if f.Epoch < box.epoch {
		return nil, &runner.StaleError{Known: runner.Fence{Session: f.Session, Generation: f.Generation, Epoch: box.epoch}}
	}
	box.epoch = f.Epoch
	return &fakeLink{fakeBox: box, epoch: f.Epoch, cut: make(chan struct{})}, nil
}

func (b *boxes) Stop(_ context.Context, h sandbox.Handle, _ runner.Fence) error {
	var name boxName
	if err := json.Unmarshal(h, &name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	b.end(name)
	return nil
}

// kill ends the sandboxes of a generation.
func (b *boxes) kill(generation uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.boxes {
		if name.Generation == generation {
			b.end(name)
		}
	}
}

// lives reports whether a sandbox has not ended.
func (b *boxes) lives(name boxName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.boxes[name] != nil && !b.boxes[name].dead
}

func (b *boxes) end(name boxName) {
	if box := b.boxes[name]; box != nil && !box.dead {
		box.dead = true
		close(box.gone)
	}
}

// cut makes every link of the servers so far useless.
func (b *boxes) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, box := range b.boxes {
		box.epoch++ // as the next bind would
	}
}

func (b *boxes) setBroken(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
}

func (b *boxes) called() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *boxes) effect(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.effects[name]
}
