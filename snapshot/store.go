//go:build linux

package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/boot"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// What is in Dir. Dir itself is locked: shared to record that a directory is in use,
// exclusively to remove any.
const (
	layersDir = "layers" // directories to mount
	namesDir  = "names"  // the identity of each of them
	usesDir   = "uses"   // which of them sessions have acquired
	mergesDir = "runs"   // what consecutive layers were merged to
	tempDir   = "tmp"    // what processes are building
	bootFile  = "boot"   // the boot in which all that was written
)

// Store stores layers.
type Store struct {
	opts Options
	temp *os.File // what this process is building; locked as long as it lives

	removing sync.WaitGroup

	mu       sync.Mutex
	inFlight map[string]chan struct{} // guarded by mu: names that are being built
	codecs   codecs
}

// Open opens the layers in a directory, which it creates if it is missing. It removes
// what dead processes have left unfinished.
func Open(opts Options) (*Store, error) {
	s := &Store{opts: opts.withDefaults(), inFlight: make(map[string]chan struct{})}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("open layers in %s: %w", opts.Dir, layer.Full(err))
	}
	return s, nil
}

func (s *Store) prepare() (err error) {
	if s.opts.Dir, err = filepath.Abs(s.opts.Dir); err != nil {
		return err
	}
	for _, dir := range []string{usesDir, mergesDir, tempDir} {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return err
		}
	}
	// Workspaces may have set-user-ID programs that other users of this machine must not
	// reach.
	if err := os.Chmod(s.opts.Dir, 0o700); err != nil { //nolint:gosec // it is a directory
		return err
	}
	if s.temp, err = dirlock.MkdirTemp(s.path(tempDir)); err != nil {
		return err
	}
	if err := s.dropOtherBoots(); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// dropOtherBoots discards directories that were written in another boot. They are never
// synced, so after a power cut they may be corrupt.
func (s *Store) dropOtherBoots() error {
	alone, err := dirlock.Hold(s.opts.Dir, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = alone.Close() }()
	now, err := boot.ID()
	if err != nil {
		return err
	}
	was, err := os.ReadFile(s.path(bootFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if strings.TrimSpace(string(was)) == now {
		return nil
	}
	old := []string{s.path(layersDir), s.path(namesDir)}
	if err := s.discard(old...); err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return atomicfile.Write(s.path(bootFile), []byte(now+"\n"), 0o600)
}

// discard moves directories away at once, and removes them in the background. Those that
// do not exist are ignored.
func (s *Store) discard(paths ...string) error {
	away, err := os.MkdirTemp(s.temp.Name(), "gone-")
	if err != nil {
		return err
	}
	for _, path := range paths {
		err := os.Rename(path, filepath.Join(away, filepath.Base(path)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	s.removing.Go(func() {
		if err := beneath.At(away).Remove(); err != nil {
			s.opts.Log.Warn("layers not removed", "dir", away, "error", err)
		}
	})
	return nil
}

// Close waits for what is being removed, and releases the store, which must not be used
// afterwards.
func (s *Store) Close() error {
	s.removing.Wait()
	if err := errors.Join(beneath.At(s.temp.Name()).Remove(), s.temp.Close()); err != nil {
		return fmt.Errorf("close layers in %s: %w", s.opts.Dir, err)
	}
	return nil
}

// path is the path of something in Dir.
func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.opts.Dir}, names...)...)
}

// hexOf is the digits of a digest that is valid.
func hexOf(d dormouse.Digest) string { return strings.TrimPrefix(string(d), "sha256:") }

// Limits is what a layer may hold.
func (s *Store) Limits() layer.Limits { return s.opts.Limits }
