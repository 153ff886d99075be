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

// egressSockets serve the sockets by which the sandboxes of this machine reach egress. A
// sandbox has its network whether or not a server is attached to its runner: its policy is
// noted in the box, and of the servers that use the directory the first to lock that note
// serves it. When that server ends, however it ends, another takes over.
type egressSockets struct {
	boxes string
	serve func(ctx context.Context, from EgressPolicy, l net.Listener) error // nil: there is no network
	log   *slog.Logger

	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // sockets are served until the driver is closed
	running sync.WaitGroup

	mu     sync.Mutex
	served map[string]bool // guarded by mu; boxes whose socket this server serves
}

// egressNote is the policy of a box.
type egressNote struct {
	Session dormouse.SessionID `json:"session"`
	Spec    boxSpec            `json:"made"`
	// Kernel is its process.
	Kernel int `json:"kernel"`
}

// egressEvery is how often a server looks for sockets that no server serves.
const egressEvery = time.Second

func (b box) egressNote() string { return filepath.Join(b.dir, "outlet.json") }

// start serves the sockets that servers before this one have left, and goes on looking for
// others.
func (o *egressSockets) start() {
	o.served = make(map[string]bool)
	o.ctx, o.stop = context.WithCancel(context.Background()) //nolint:forbidigo // it lives as long as the driver
	if o.serve == nil {
		return
	}
	o.running.Go(func() {
		for {
			o.serveUnserved()
			if sleep.For(o.ctx, egressEvery) != nil {
				return
			}
		}
	})
}

// close stops serving. Another server may take over.
func (o *egressSockets) close() {
	o.stop()
	o.running.Wait()
}

// serveUnserved serves the sockets that no server serves.
func (o *egressSockets) serveUnserved() {
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

func (o *egressSockets) isServed(b box) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.served[b.id]
}

// open notes the policy of a sandbox whose kernel exists, and serves its socket if no
// server does yet.
func (o *egressSockets) open(b box, session dormouse.SessionID, m boxSpec, kernel int) error {
	if o.serve == nil || !m.Network || o.isServed(b) {
		return nil
	}
	raw, err := json.Marshal(egressNote{Session: session, Spec: m, Kernel: kernel})
	if err == nil {
		err = os.WriteFile(b.egressNote()+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(b.egressNote()+".new", b.egressNote())
	}
	if err == nil {
		err = o.try(b)
	}
	if err != nil {
		return fmt.Errorf("let the sandbox out: %w", err)
	}
	return nil
}

// try serves the socket of a box until its kernel ends, unless another server does or the
// kernel has ended.
func (o *egressSockets) try(b box) (err error) {
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
		return nil // another server does
	}
	raw, err := os.ReadFile(b.egressNote())
	if err != nil {
		return err
	}
	var note egressNote
	if err := json.Unmarshal(raw, &note); err != nil {
		return fmt.Errorf("read where the way out leads: %w", err)
	}
	kernel := runs(b.id, note.Kernel)
	if kernel == nil {
		return nil // the owner of the session removes the box
	}
	undo = append(undo, kernel.Close)
	out, err := runner.ListenAt(b.egressSocket())
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

// run serves one socket.
func (o *egressSockets) run(b box, note egressNote, kernel *pidfd.Process, out net.Listener, held *os.File) {
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = kernel.Wait(ctx)
		cancel()
	})
	if err := o.serve(ctx, note.Spec.egressPolicy(note.Session), out); err != nil && ctx.Err() == nil {
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
