//go:build linux

package archives

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

func snapshots() []Case {
	return []Case{
		{"capture-devices", "a workspace with devices and sockets in it", devices},
		{"capture-mounted", "a workspace that something is mounted in", mountedInside},
		{"capture-traps", "pipes, links that lead out, directories without end", traps},
		{"capture-changes", "a file that changes while it is read", changes},
		{"capture-exchanged", "names that are now a file, now a link, now a pipe", exchanged},
		{"capture-grows", "a file that grows for ever", grows},
		{"capture-too-large", "a workspace larger than a layer may be", tooLarge},
		{"capture-many-files", "100 000 files", manyFiles},
	}
}

// workspace is an empty directory to take snapshots of.
func (w *World) workspace(ctx context.Context) (from string, err error) {
	if err := errors.Join(context.Cause(ctx), w.empty()); err != nil {
		return "", err
	}
	from, to := filepath.Join(w.Target, "from"), filepath.Join(w.Target, "to")
	return from, errors.Join(os.Mkdir(from, 0o700), os.Mkdir(to, 0o700))
}

// captured is a snapshot that is being taken of a workspace.
func (w *World) captured(from string, l layer.Limits) (c *layer.Capture, to string) {
	to = filepath.Join(w.Target, "to")
	return layer.NewCapture(beneath.At(from), to, nil, nil, l), to
}

// pass makes one pass over the workspace.
func (w *World) pass(ctx context.Context, c *layer.Capture, most int64) (settled bool, err error) {
	got, breach := w.guard(ctx, most, func(ctx context.Context) (err error) {
		settled, err = c.Pass(ctx, nil)
		return err
	})
	return settled, errors.Join(got, breach)
}

// leaves takes a snapshot of a workspace and checks that nothing else is left out of it.
func (w *World) leaves(ctx context.Context, from string, want ...string) (string, error) {
	c, to := w.captured(from, limits)
	settled, err := w.pass(ctx, c, limits.Bytes+little)
	if err == nil && !settled {
		err = errors.New("what stands still seems to change")
	}
	if err != nil {
		return "", err
	}
	var left []string
	for _, e := range c.Skipped() {
		left = append(left, e.Path)
	}
	if !slices.Equal(left, want) {
		return "", fmt.Errorf("left out are %.200q, not %.200q", left, want)
	}
	return fmt.Sprintf("%d are left out and said to be", len(left)), w.inspect(to, limits)
}

func devices(ctx context.Context, w *World) (string, error) {
	from, err := w.workspace(ctx)
	if err != nil {
		return "", err
	}
	err = errors.Join(
		unix.Mknod(filepath.Join(from, "mem"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))),
		unix.Mknod(filepath.Join(from, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mknod(filepath.Join(from, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))),
		os.WriteFile(filepath.Join(from, "file"), []byte("x"), 0o600),
	)
	if err != nil {
		return "", err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(from, "socket")})
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return w.leaves(ctx, from, "disk", "mem", "null", "socket")
}

func mountedInside(ctx context.Context, w *World) (string, error) {
	from, err := w.workspace(ctx)
	if err != nil {
		return "", err
	}
	at := filepath.Join(from, "m")
	if err := errors.Join(os.Mkdir(at, 0o700), unix.Mount(w.Canary, at, "", unix.MS_BIND, "")); err != nil {
		return "", err
	}
	seen, err := w.leaves(ctx, from, "m")
	return seen, errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
}

func traps(ctx context.Context, w *World) (string, error) {
	from, err := w.workspace(ctx)
	if err != nil {
		return "", err
	}
	in := func(name string) string { return filepath.Join(from, name) }
	deep := in(strings.Repeat("d/", 300))
	err = errors.Join(
		unix.Mkfifo(in("pipe"), 0o600), os.Symlink(w.Canary+"/passwd", in("link")), os.Symlink(w.Canary, in("directory")), os.Symlink("circle", in("circle")),
		os.Symlink("/proc/self/fd/0", in("descriptor")), os.WriteFile(in("closed"), []byte("x"), 0), os.MkdirAll(deep, 0o700),
		os.WriteFile(in("new\nline"), nil, 0o600), os.WriteFile(in(".wh.a"), nil, 0o600), os.WriteFile(in(".wh..wh..opq"), nil, 0o600),
		unix.Setxattr(from, "trusted.overlay.redirect", []byte("/"), 0), unix.Setxattr(in("closed"), "user.mine", []byte("m"), 0),
	)
	if err != nil {
		return "", err
	}
	return w.leaves(ctx, from) // what a file system takes a layer takes
}

// aside runs something again and again until the test is over. Halt waits for it.
func aside(do func() error) (halt func() error) {
	var over atomic.Bool
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		for !over.Load() && failed == nil {
			failed = do()
		}
	})
	return sync.OnceValue(func() error {
		over.Store(true)
		running.Wait()
		return failed
	})
}

const (
	// passes is for how long snapshots are taken while another goroutine writes.
	passes = time.Second
	// anything may be written meanwhile, by both.
	anything = math.MaxInt64
)

// changes rewrites a file all the time. Once that ends, a pass has it complete.
func changes(ctx context.Context, w *World) (string, error) {
	from, err := w.workspace(ctx)
	if err != nil {
		return "", err
	}
	name := filepath.Join(from, "file")
	n := byte(0)
	halt := aside(func() error {
		n++
		return os.WriteFile(name, bytes.Repeat([]byte{n}, 512<<10), 0o600)
	})
	defer func() { _ = halt() }()
	c, to := w.captured(from, limits)
	rounds, changed := 0, 0
	for began := time.Now(); time.Since(began) < passes; rounds++ {
		settled, err := w.pass(ctx, c, anything)
		if err != nil {
			return "", err
		}
		if !settled {
			changed++
		}
	}
	if err := halt(); err != nil {
		return "", err
	}
	settled, err := w.pass(ctx, c, limits.Bytes+little)
	if err != nil || !settled {
		return "", errors.Join(err, errors.New("what stands still seems to change"))
	}
	want, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	got, err := os.ReadFile(filepath.Join(to, "file"))
	if err != nil || !bytes.Equal(got, want) {
		return "", errors.Join(err, errors.New("it is not what it was in the end"))
	}
	return fmt.Sprintf("%d of %d passes say that it changed, the last one has it whole", changed, rounds), w.inspect(to, limits)
}

// exchanged changes what names mean between one look and the next.
func exchanged(ctx context.Context, w *World) (string, error) {
	from, err := w.workspace(ctx)
	if err != nil {
		return "", err
	}
	in := func(name string) string { return filepath.Join(from, name) }
	beside := filepath.Join(w.Target, "beside")
	if err := os.Mkdir(beside, 0o700); err != nil {
		return "", err
	}
	var n int
	halt := aside(func() error {
		n++
		next := filepath.Join(beside, "next")
		var err error
		switch n % 4 {
		case 0:
			err = os.WriteFile(next, []byte("x"), 0o600)
		case 1:
			err = os.Symlink(w.Canary+"/passwd", next)
		case 2:
			err = unix.Mkfifo(next, 0o600)
		case 3:
			err = os.Symlink(w.Canary+"/dir", in("d.next"))
			if err == nil {
				err = errors.Join(os.RemoveAll(in("d")), os.Rename(in("d.next"), in("d")))
			}
			if err == nil {
				err = errors.Join(os.Remove(in("d")), os.Mkdir(in("d"), 0o700), os.WriteFile(in("d/file"), []byte("x"), 0o600))
			}
			return err
		}
		if err != nil {
			return err
		}
		return os.Rename(next, in("file"))
	})
	defer func() { _ = halt() }()
	rounds := 0
	for began := time.Now(); time.Since(began) < passes; rounds++ {
		to := filepath.Join(w.Target, fmt.Sprint("to", rounds))
		if err := os.Mkdir(to, 0o700); err != nil {
			return "", err
		}
		c := layer.NewCapture(beneath.At(from), to, nil, nil, limits)
		for range 5 { // each corrects the one before
			if _, err := w.pass(ctx, c, anything); err != nil {
				return "", err
			}
		}
		if err := w.inspect(to, limits); err != nil {
			return "", err
		}
	}
	if err := halt(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d snapshots beside %d changes have nothing of it", rounds, n), w.empty()
}

// grows appends to a file for ever. A snapshot has no more of it than its size when it
// was first seen.
func grows(ctx context.Context, w *World) (string, error) {
	from, err := w.workspace(ctx)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(from, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	halt := aside(func() error {
		time.Sleep(50 * time.Microsecond) // or this case would be about the disk
		_, err := f.Write(make([]byte, 4096))
		return err
	})
	defer func() { _ = halt() }()
	l := layer.Limits{Entries: 10, Bytes: 1 << 40}
	c, to := w.captured(from, l)
	rounds := 0
	for began := time.Now(); time.Since(began) < passes; rounds++ {
		before, err := f.Stat()
		if err != nil {
			return "", err
		}
		if _, err := w.pass(ctx, c, anything); err != nil {
			return "", err
		}
		after, err := f.Stat()
		if err != nil {
			return "", err
		}
		got, err := os.Stat(filepath.Join(to, "log"))
		if err != nil || got.Size() < before.Size() || got.Size() > after.Size() {
			return "", errors.Join(err, fmt.Errorf("a pass has %d bytes of a file that had %d to %d", got.Size(), before.Size(), after.Size()))
		}
	}
	if err := halt(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d passes end, and have what was there", rounds), w.empty()
}

func tooLarge(ctx context.Context, w *World) (string, error) {
	for want, fill := range map[error]func(from string) error{
		layer.ErrTooBig: func(from string) error { return os.Truncate(filepath.Join(from, "0"), 1<<42) },
		layer.ErrTooMany: func(from string) error {
			var err error
			for n := range limits.Entries {
				err = errors.Join(err, os.WriteFile(filepath.Join(from, fmt.Sprint(n)), nil, 0o600))
			}
			return err
		},
	} {
		from, err := w.workspace(ctx)
		if err == nil {
			err = os.WriteFile(filepath.Join(from, "0"), nil, 0o600)
		}
		if err == nil {
			err = fill(from)
		}
		if err != nil {
			return "", err
		}
		c, _ := w.captured(from, limits)
		_, got := w.pass(ctx, c, limits.Bytes+little)
		if _, err := said(got, nil, want); err != nil {
			return "", err
		}
	}
	return "it is refused before anything is written", w.empty()
}

// manyFiles takes a snapshot of a workspace of many files, stores it, and restores it
// where there is no cached directory of it.
func manyFiles(ctx context.Context, w *World) (string, error) {
	const files, perDir = 100_000, 1000
	l := layer.Limits{Entries: files + files/perDir + 1, Bytes: 1 << 30}
	from, err := w.workspace(ctx)
	if err != nil {
		return "", err
	}
	for n := range files {
		dir := filepath.Join(from, fmt.Sprint(n/perDir))
		if n%perDir == 0 {
			err = os.Mkdir(dir, 0o700)
		}
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), []byte("x"), 0o600)); err != nil {
			return "", err
		}
	}
	s, err := w.store(l)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	g, err := s.Stage(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = g.Close() }()
	began := time.Now()
	took := func(what string) string {
		text := fmt.Sprintf("%s in %s", what, time.Since(began).Round(10*time.Millisecond))
		began = time.Now()
		return text
	}
	c := layer.NewCapture(beneath.At(from), g.Dir, nil, nil, l)
	settled, err := c.Pass(ctx, nil)
	if err != nil || !settled {
		return "", errors.Join(err, fmt.Errorf("settled is %t", settled))
	}
	seen := took("captured")
	put, err := s.Put(ctx, g)
	if err != nil {
		return "", err
	}
	if put.Entries != files+files/perDir {
		return "", fmt.Errorf("%d entries were kept", put.Entries)
	}
	seen += ", " + took("kept")
	fresh, err := snapshot.Open(snapshot.Options{Dir: filepath.Join(w.Target, "fresh"), Blobs: w.Blobs, Limits: l})
	if err != nil {
		return "", err
	}
	defer func() { _ = fresh.Close() }()
	began = time.Now()
	dirs, err := fresh.Acquire(ctx, owner, 1, []dormouse.Layer{put}, nil)
	if err != nil {
		return "", err
	}
	seen += ", " + took("restored")
	return seen, w.inspect(dirs[0], l)
}
