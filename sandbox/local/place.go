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

// place is where one sandbox keeps its state, whether it lives or not.
type place struct {
	session    dormouse.SessionID
	generation uint64
	mark       string // what its processes carry
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

// fence is the newest that the sandbox was reached under.
func (p place) fence() runner.FenceFile {
	return runner.FenceFile(filepath.Join(p.dir, "reached.json"))
}

// refuses returns runner.ErrStale if whoever comes under f is late: the sandbox is of a
// newer generation, or was reached under a newer epoch.
func (p place) refuses(f runner.Fence) error {
	if p.generation > f.Generation {
		return runner.ErrStale
	}
	return p.fence().Check(f)
}

// lock keeps everyone else from creating, attaching to or ending a sandbox of
// this session.
func (p place) lock(ctx context.Context) (unlock func(), err error) {
	return dirlock.Lock(ctx, filepath.Dir(p.dir))
}

// prepare makes the place ready for a runner: its files stay, its secret is new.
func (p place) prepare() error {
	for _, dir := range []string{p.dir, p.home} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	// A runner that begins now must not be taken for the one before it.
	if err := inside.RemoveAlive(p.dir); err != nil {
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

// complaint is the end of the runner's log, if it has one.
func (p place) complaint() error {
	b, err := os.ReadFile(p.log())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("its log ends: %q", bytes.TrimSpace(b[max(0, len(b)-500):]))
}

// watchRunner watches the runner that lives here, if one does.
func (p place) watchRunner() (*pidfd.Process, error) {
	for {
		pid, err := inside.Alive(p.dir)
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
		// It signs and holds the same file after we got hold of its pid, so the
		// pid was and is its own.
		again, err := inside.Alive(p.dir)
		if err == nil && again == pid {
			return w, nil
		}
		w.Close()
		if err != nil {
			return nil, err
		}
	}
}

// readSecret returns what the runner that lives here proves itself with.
func (p place) readSecret() (string, error) {
	b, err := os.ReadFile(p.secret())
	if err != nil {
		return "", fmt.Errorf("read the runner's secret: %w", err)
	}
	return string(b), nil
}
