package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/internal/pidfd"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/runner/inside"
)

// What lies under a driver's directory.
const (
	workspaces = "workspaces"
	homes      = "homes"
	sandboxes  = "sandboxes"
)

// place is the paths of one sandbox, whether it is running or not.
type place struct {
	session    dormouse.SessionID
	generation uint64
	mark       string // the value of the mark variable of its processes
	dir        string // its runner's state
	workspace  string // set when it is created
	home       string
}

func (d *Driver) placeOf(id dormouse.SessionID, generation uint64) (place, error) {
	if err := (runner.Fence{Session: id, Generation: generation}).Validate(); err != nil {
		return place{}, err
	}
	n := strconv.FormatUint(generation, 10)
	return place{
		session:    id,
		generation: generation,
		mark:       d.opts.Instance + "/" + string(id) + "/" + n,
		dir:        filepath.Join(d.opts.Dir, sandboxes, string(id), n),
		home:       filepath.Join(d.opts.Dir, homes, string(id)),
	}, nil
}

func (p place) String() string { return fmt.Sprintf("sandbox %d of %s", p.generation, p.session) }

func (p place) socket() string { return filepath.Join(p.dir, "socket") }
func (p place) secret() string { return filepath.Join(p.dir, "secret") }
func (p place) log() string    { return filepath.Join(p.dir, "log") }

// fence is the file with the newest fence of the sandbox.
func (p place) fence() runner.FenceFile {
	return runner.FenceFile(filepath.Join(p.dir, "reached.json"))
}

// checkFence returns runner.ErrStale if f is stale: the sandbox is of a newer generation,
// or a newer epoch has reached it.
func (p place) checkFence(f runner.Fence) error {
	if p.generation > f.Generation {
		return runner.ErrStale
	}
	return p.fence().Check(f)
}

// lock excludes other servers from creating, attaching to or ending a sandbox of this
// session.
func (p place) lock(ctx context.Context) (unlock func(), err error) {
	return dirlock.Lock(ctx, filepath.Dir(p.dir))
}

// prepare prepares the directory for a runner. Its files stay, its secret is new.
func (p place) prepare() error {
	for _, dir := range []string{p.dir, p.home} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	// The new runner must not be taken for the one before it.
	if err := inside.RemovePIDFile(p.dir); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := os.WriteFile(p.secret(), []byte(newSecret()), 0o600); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// remove removes the runner's state. A link that has lost its runner and does
// not know yet that it is dead may put its socket back meanwhile.
func (p place) remove(ctx context.Context) error {
	for {
		err := os.RemoveAll(p.dir)
		if !errors.Is(err, unix.ENOTEMPTY) || sleep.For(ctx, time.Millisecond) != nil {
			return err
		}
	}
}

// logTail is an error with the end of the runner's log, nil if that is empty.
func (p place) logTail() error {
	b, err := os.ReadFile(p.log())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("its log ends: %q", bytes.TrimSpace(b[max(0, len(b)-500):]))
}

// openRunner opens a pidfd of the running runner, nil if there is none.
func (p place) openRunner() (*pidfd.Process, error) {
	for {
		pid, err := inside.LivePID(p.dir)
		if err != nil || pid == 0 {
			return nil, err
		}
		w, err := pidfd.Open(pid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The runner still has the PID file locked after we opened the pidfd, so the
		// PID was not reused.
		again, err := inside.LivePID(p.dir)
		if err == nil && again == pid {
			return w, nil
		}
		w.Close()
		if err != nil {
			return nil, err
		}
	}
}

// readSecret returns the secret that authenticates the runner.
func (p place) readSecret() (string, error) {
	b, err := os.ReadFile(p.secret())
	if err != nil {
		return "", fmt.Errorf("read the runner's secret: %w", err)
	}
	return string(b), nil
}
