//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// The tests whose names begin with a number such as B07 are the cases of
// docs/faults.md. "make faults" runs them, and counts them.

// large is a text that does not fit in a row.
var large = strings.Repeat("a blob by itself ", 6000)

// mayMount skips a test that needs a file system of its own where there can be
// none.
func mayMount(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse")
	}
}

// drive is a disk that can be told to fail, and whose power can be cut.
type drive struct {
	*powercut.Disk
	under string // where what is durable is
	at    string
}

func newDrive(under, at string) (*drive, error) {
	for _, dir := range []string{under, at} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	d := &drive{under: under, at: at}
	return d, d.mount()
}

func (d *drive) mount() (err error) {
	d.Disk, err = powercut.Mount(d.under, d.at)
	return err
}

// lose cuts the power while no client is served, turns it on again and checks
// that what is left is sound.
func (d *drive) lose(ctx context.Context, binary string, keep powercut.Keep) error {
	if err := errors.Join(d.Cut(keep), d.Close()); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, binary, "store", "rebuild", "--check", "--data", d.under).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("rebuild --check: %w\n%s", err, out)
	}
	return errors.Join(err, d.mount())
}

// newFaulty starts a server on a drive.
func newFaulty(t *testing.T, change ...func(*rig.Server)) (*world, *drive) {
	t.Helper()
	mayMount(t)
	var d *drive
	w := newWorld(t, append(change, func(s *rig.Server) {
		var err error
		d, err = newDrive(filepath.Join(filepath.Dir(s.Data), "disk"), s.Data)
		must(t, err)
		t.Cleanup(func() { must(t, d.Close()) })
	})...)
	return w, d
}

// outage is the power failing for the server, its sandboxes and its disk while
// the disk holds up what s picks.
func (w *world) outage(d *drive, s *stall, keep powercut.Keep) {
	w.t.Helper()
	s.wait(w)
	var err error
	w.after(func() {
		w.KillSandboxes()
		err = d.lose(w.ctx, w.Binary.Server, keep)
	}, func(life *rig.Life) {
		life.Signal(syscall.SIGKILL)
		s.end() // a process that waits for the disk cannot die
	})
	must(w.t, err)
}

// stall is a disk that hangs at the first request of a kind.
type stall struct {
	hit     func(powercut.Request) bool
	reached func()
	at      <-chan struct{}
	end     func()
	ended   <-chan struct{}
}

func newStall(hit func(powercut.Request) bool) *stall {
	at, ended := make(chan struct{}), make(chan struct{})
	return &stall{
		hit: hit, at: at, reached: sync.OnceFunc(func() { close(at) }),
		ended: ended, end: sync.OnceFunc(func() { close(ended) }),
	}
}

// fault hangs until end; then the power fails.
func (s *stall) fault(r powercut.Request) error {
	if !s.hit(r) {
		return nil
	}
	s.reached()
	<-s.ended
	if r.Op == powercut.Sync || r.Op == powercut.SyncDir {
		return powercut.Unanswered
	}
	return syscall.EIO
}

// wait waits for the disk to hang.
func (s *stall) wait(w *world) {
	w.t.Helper()
	select {
	case <-s.at:
	case <-w.ctx.Done():
		s.end()
		w.t.Fatalf("waiting for the disk to be asked: %v", context.Cause(w.ctx))
	}
}

// failing answers with err whatever hit picks.
func failing(err error, hit func(powercut.Request) bool) powercut.Fault {
	return func(r powercut.Request) error {
		if hit(r) {
			return err
		}
		return nil
	}
}

// once lets a fault strike one time.
func once(f powercut.Fault) powercut.Fault {
	var mu sync.Mutex
	struck := false
	return func(r powercut.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if struck {
			return nil
		}
		err := f(r)
		struck = err != nil
		return err
	}
}

func inBlobs(r powercut.Request) bool { return strings.HasPrefix(r.Path, "blobs/") }

// inLog picks what concerns the database's write-ahead log.
func inLog(r powercut.Request) bool { return r.Path == "dormouse.db-wal" }
