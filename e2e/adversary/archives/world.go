//go:build linux

package archives

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// limits is what an archive may take.
var limits = layer.Limits{Entries: 1000, Bytes: 1 << 20}

// Within is how long one attempt may take on a machine that does nothing else.
const Within = 5 * time.Second

const (
	// plainMost is what the tar of a layer may have within the limits.
	plainMost = 1<<20 + 1001*16<<10
	// little is the size of what is written beside files: notes, and the output of the
	// harness.
	little = 1 << 20

	owner dormouse.SessionID = "sesn_1"
)

// World is a directory to restore to, a tree beside it that must not be touched, and a
// store with a workspace in use.
type World struct {
	// Secret is in the files of the tree Canary, where the process is too.
	Secret, Canary string
	// Target is empty when an attempt begins.
	Target string
	// Blobs is what hostile layers are put in.
	Blobs *dir.Store

	within          time.Duration // for one attempt
	base, home, was string
	good            []dormouse.Layer
	attempts        uint64
}

// Open makes a world in which an attempt may take so long.
func Open(within time.Duration) (_ *World, err error) {
	w := &World{Secret: "canary-" + rand.Text(), within: within}
	if w.was, err = os.Getwd(); err != nil {
		return nil, err
	}
	if w.base, err = os.MkdirTemp("", "dormouse-archives-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	w.home = filepath.Join(w.base, "far", "away")
	w.Canary, w.Target = filepath.Join(w.home, "canary"), filepath.Join(w.home, "target")
	for _, at := range []string{w.home, w.Canary, w.Target} {
		if err := os.MkdirAll(at, 0o700); err != nil {
			return nil, err
		}
	}
	if err := w.plant(); err != nil {
		return nil, fmt.Errorf("plant the canary: %w", err)
	}
	// What is resolved from where the process is would be found there.
	if err := os.Chdir(w.Canary); err != nil {
		return nil, err
	}
	if w.Blobs, err = dir.Open(filepath.Join(w.home, "blobs")); err != nil {
		return nil, err
	}
	return w, w.keepGood()
}

// plant makes one of each kind in the canary.
func (w *World) plant() error {
	in := func(name string) string { return filepath.Join(w.Canary, name) }
	err := errors.Join(
		os.WriteFile(in("passwd"), []byte(w.Secret), 0o600), os.Link(in("passwd"), in("another name")),
		os.Mkdir(in("dir"), 0o755), os.WriteFile(in("dir/file"), []byte(w.Secret), 0o640), os.Lchown(in("dir/file"), 1234, 1234),
		os.Mkdir(in("dir/empty"), 0o700), os.Symlink("passwd", in("link")), unix.Mkfifo(in("pipe"), 0o600),
		os.WriteFile(in("program"), nil, 0o755), unix.Chmod(in("program"), 0o4755), unix.Chmod(in("dir"), 0o2755),
		unix.Setxattr(in("passwd"), "user.x", []byte("x"), 0), unix.Setxattr(in("dir"), "trusted.x", []byte("x"), 0),
	)
	old := unix.NsecToTimeval(time.Unix(1_000_000_000, 0).UnixNano())
	for _, name := range []string{"passwd", "link", "pipe", "program", "dir/file", "dir/empty", "dir", "."} {
		err = errors.Join(err, unix.Lutimes(in(name), []unix.Timeval{old, old}))
	}
	return err
}

// keepGood keeps a layer that is in use as long as the world is there.
func (w *World) keepGood() error {
	s, err := w.store(limits)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	g, err := s.Stage(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	if err := os.WriteFile(filepath.Join(g.Dir, "work"), []byte("of yesterday"), 0o600); err != nil {
		return err
	}
	l, err := s.Put(context.Background(), g)
	if err != nil {
		return err
	}
	w.good = []dormouse.Layer{l}
	_, err = s.Acquire(context.Background(), owner, 1, w.good, nil)
	return err
}

// Close removes everything.
func (w *World) Close() error {
	err := os.Chdir(w.was)
	if w.Blobs != nil {
		err = errors.Join(err, w.Blobs.Close())
	}
	return errors.Join(err, os.RemoveAll(w.base))
}

// store opens the layers.
func (w *World) store(l layer.Limits) (*snapshot.Store, error) {
	return snapshot.Open(snapshot.Options{Dir: filepath.Join(w.home, "store"), Blobs: w.Blobs, Limits: l})
}

// empty empties the target, whatever became of it.
func (w *World) empty() error {
	if err := os.RemoveAll(w.Target); err != nil {
		return err
	}
	return os.Mkdir(w.Target, 0o700)
}

// look writes down all there is but what an attempt may write: the target, blobs,
// and of the store what is not the workspace in use.
func (w *World) look() (string, error) {
	own := map[string]bool{w.home: false, w.Target: true, filepath.Join(w.home, "blobs"): true, filepath.Join(w.home, "store"): true}
	all, err := tree(w.base, own)
	if err != nil {
		return "", err
	}
	s, err := w.store(limits)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	dirs, err := s.Acquire(context.Background(), owner, 1, w.good, nil)
	if err != nil {
		return "", fmt.Errorf("the workspace in use: %w", err)
	}
	for _, at := range dirs {
		used, err := tree(at, nil)
		if err != nil {
			return "", err
		}
		all += used
	}
	return all, nil
}

// guard makes an attempt within a time and an amount of writing. It returns the result,
// and whether the attempt stayed within both.
func (w *World) guard(ctx context.Context, most int64, do func(context.Context) error) (got, breach error) {
	ctx, cancel := context.WithTimeout(ctx, w.within)
	defer cancel()
	before, err := written()
	if err != nil {
		return nil, err
	}
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- do(ctx) }()
	late := time.NewTimer(w.within + time.Second) // a result that came because the context ended is still received
	defer late.Stop()
	select {
	case got = <-done:
	case <-late.C:
		return nil, errors.New("it is stuck")
	}
	took := time.Since(began)
	after, err := written()
	switch {
	case err != nil:
		return got, err
	case took > w.within:
		return got, fmt.Errorf("it took %s: %w", took, got)
	case after-before > most:
		return got, fmt.Errorf("it wrote %d bytes, and may %d: %w", after-before, most, got)
	}
	return got, nil
}

// written is how many bytes this process has written so far.
func written() (int64, error) {
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(raw) {
		if n, ok := bytes.CutPrefix(line, []byte("wchar: ")); ok {
			return strconv.ParseInt(string(bytes.TrimSpace(n)), 10, 64)
		}
	}
	return 0, errors.New("the kernel does not say what was written")
}
