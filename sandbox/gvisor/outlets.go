//go:build linux

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/flock"
	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
)

// outlets are the ways out of the sandboxes on this machine. A sandbox that is awake
// has its network whether or not a server is linked to its runner: which way it leads
// is noted in the box, and of the servers that use the directory the first to lock
// that note serves it. When that one ends, however it ends, another does.
type outlets struct {
	boxes string
	serve func(ctx context.Context, from Outgoing, l net.Listener) error // nil: nobody is let out
	log   *slog.Logger

	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // they outlive whoever opens one, and end with the driver
	running sync.WaitGroup

	mu     sync.Mutex
	served map[string]bool // guarded by mu; boxes whose outlet is ours
}

// outletNote is what a box says of its way out.
type outletNote struct {
	Session dormouse.SessionID `json:"session"`
	Made    made               `json:"made"`
	// Kernel is its process.
	Kernel int `json:"kernel"`
}

// outletsEvery is how often it is looked for outlets that nobody serves.
const outletsEvery = time.Second

func (b box) outletNote() string { return filepath.Join(b.dir, "outlet.json") }

// begin serves what servers before this one have left, and goes on looking.
func (o *outlets) begin() {
	o.served = make(map[string]bool)
	o.ctx, o.stop = context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	if o.serve == nil {
		return
	}
	o.running.Go(func() {
		for {
			o.takeUp()
			if sleep.For(o.ctx, outletsEvery) != nil {
				return
			}
		}
	})
}

// end lets go of every outlet. Another server may take them.
func (o *outlets) end() {
	o.stop()
	o.running.Wait()
}

// takeUp serves the outlets that nobody serves.
func (o *outlets) takeUp() {
	notes, _ := filepath.Glob(o.boxes + "/sbx_*/outlet.json") // the pattern is our own
	for _, name := range notes {
		b := box{id: filepath.Base(filepath.Dir(name)), dir: filepath.Dir(name)}
		if o.isServed(b) {
			continue
		}
		if err := o.try(b); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.log.Warn("sandbox without network", "sandbox", b.id, "error", err)
		}
	}
}

func (o *outlets) isServed(b box) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.served[b.id]
}

// open notes where the way out of a sandbox leads, and serves it if nobody does yet.
// The kernel of the box is there.
func (o *outlets) open(b box, session dormouse.SessionID, m made, kernel int) error {
	if o.serve == nil || !m.Network || o.isServed(b) {
		return nil
	}
	raw, err := json.Marshal(outletNote{Session: session, Made: m, Kernel: kernel})
	if err == nil {
		err = os.WriteFile(b.outletNote()+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(b.outletNote()+".new", b.outletNote())
	}
	if err == nil {
		err = o.try(b)
	}
	if err != nil {
		return fmt.Errorf("let the sandbox out: %w", err)
	}
	return nil
}

// try serves the outlet of a box until its kernel ends, unless somebody does or
// the kernel has ended.
func (o *outlets) try(b box) (err error) {
	held, err := os.OpenFile(filepath.Join(b.dir, "outlet.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	var undo []func()
	defer func() {
		for _, f := range undo {
			f()
		}
	}()
	undo = append(undo, func() { _ = held.Close() })
	if flock.Lock(held, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // somebody does
	}
	raw, err := os.ReadFile(b.outletNote())
	if err != nil {
		return err
	}
	var note outletNote
	if err := json.Unmarshal(raw, &note); err != nil {
		return fmt.Errorf("read where the way out leads: %w", err)
	}
	kernel := runs(b.id, note.Kernel)
	if kernel == nil {
		return nil // whoever has the session clears it away
	}
	undo = append(undo, kernel.Close)
	out, err := runner.ListenAt(b.outlet())
	if err != nil {
		return err
	}
	undo = nil
	o.mu.Lock()
	o.served[b.id] = true
	o.mu.Unlock()
	o.running.Go(func() { o.run(b, note, kernel, out, held) })
	return nil
}

// run serves one outlet.
func (o *outlets) run(b box, note outletNote, kernel *pidfd.Process, out net.Listener, held *os.File) {
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = kernel.Wait(ctx)
		cancel()
	})
	if err := o.serve(ctx, note.Made.outgoing(note.Session), out); err != nil && ctx.Err() == nil {
		o.log.Error("sandbox without network", "session", note.Session, "error", err)
	}
	cancel()
	watching.Wait()
	kernel.Close()
	_ = out.Close()
	o.mu.Lock()
	delete(o.served, b.id)
	o.mu.Unlock()
	_ = held.Close()
}
