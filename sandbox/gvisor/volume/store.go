//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/mount"
)

// Store creates the volumes of sessions on one disk and keeps blocks allocated for those
// that are open.
type Store struct {
	dir      string          // on the disk
	limits   dormouse.Limits // of a default volume
	template string          // of a default volume, empty if sizes are not limited
	log      *slog.Logger
	balancer balancer
}

// NewStore probes the disk and creates the template of default volumes.
func NewStore(dir string, limits dormouse.Limits, log *slog.Logger) (_ *Store, err error) {
	s := &Store{dir: dir, limits: limits, log: log}
	if err := s.balancer.begin(dir, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.balancer.end()
		}
	}()
	s.template, err = s.templateName()
	if errors.Is(err, errUnsupported) {
		log.Warn("the size of workspaces is not limited", "error", err)
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.makeTemplate(); err != nil && !errors.Is(err, dormouse.ErrFull) {
		return nil, err
	}
	return s, nil
}

// Stop stops the balancer.
func (s *Store) Stop() { s.balancer.end() }

// Limited reports whether default volumes have a limited size.
func (s *Store) Limited() bool { return s.template != "" }

// Join keeps headroom in an open volume until Leave is called as often.
func (s *Store) Join(v Volume, headroom int64) { s.balancer.join(v, headroom) }

// Leave undoes one Join.
func (s *Store) Leave(v Volume) { s.balancer.leave(v) }

// Open mounts the volume of a session, with blocks allocated for it. If the session has
// none, it takes the one that was made ahead, if that exists, or creates one with these
// limits. The name of a new one is durable after SyncName.
func (s *Store) Open(v, ahead Volume, l dormouse.Limits) error {
	if err := v.CheckSound(); err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	if err := os.MkdirAll(v.Mountpoint(), 0o700); err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	backed, err := s.mountVolume(v, ahead, l)
	if err == nil && !backed {
		err = s.Back(v)
	}
	if err == nil {
		err = v.clearCopied()
	}
	if err != nil {
		return fmt.Errorf("open volume: %w", errors.Join(err, s.Close(v)))
	}
	return v.makeDirs()
}

// mountVolume reports whether the volume has blocks allocated already.
func (s *Store) mountVolume(v, ahead Volume, l dormouse.Limits) (backed bool, err error) {
	_, err = os.Stat(v.Image())
	if errors.Is(err, fs.ErrNotExist) && isEmpty(v.Mountpoint()) {
		backed, err = s.create(v, ahead, l)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errUnsupported):
		return true, v.markOpened() // a plain directory
	case err != nil:
		return false, err
	}
	if err := v.markCreated(); err != nil {
		return false, err
	}
	there, err := mount.Is(v.Mountpoint())
	if err != nil || there {
		return backed, err
	}
	return false, v.mountImage()
}

// create creates the volume of a session, or returns errUnsupported. A default one is the
// one that was made ahead, with blocks allocated, or a copy of the template.
func (s *Store) create(v, ahead Volume, l dormouse.Limits) (backed bool, err error) {
	standard := l.Disk == s.limits.Disk && l.Inodes == s.limits.Inodes
	switch {
	case l.Disk == 0, standard && s.template == "":
		return false, errUnsupported
	case standard:
		s.balancer.remove(ahead)
		err := os.Rename(ahead.Image(), v.Image())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, s.copyTemplate(v.Image())
		case err != nil:
			return false, err
		}
		// It stays mounted there until the sandbox is removed.
		return true, mount.At(ahead.Mountpoint(), v.Mountpoint(), "volume", unix.MS_BIND, "")
	}
	return false, makeFileSystem(v.Image(), l)
}

// MakeAhead creates and opens an empty volume for a session to come.
func (s *Store) MakeAhead(v Volume) error {
	if s.template == "" {
		return nil
	}
	if err := os.MkdirAll(v.Mountpoint(), 0o700); err != nil {
		return fmt.Errorf("make a volume ahead: %w", err)
	}
	err := s.copyTemplate(v.Image())
	if err == nil {
		err = mountLoop(v.Image(), v.Mountpoint())
	}
	if err == nil {
		err = s.Back(v)
	}
	if err == nil {
		err = v.makeDirs()
	}
	if err != nil {
		return fmt.Errorf("make a volume ahead: %w", err)
	}
	s.balancer.join(v, MaxHeadroom)
	return nil
}

// DropAhead removes a volume that was made ahead, if no session has taken it.
func (s *Store) DropAhead(v Volume) error {
	s.balancer.remove(v)
	if _, err := os.Stat(v.Image()); err != nil {
		return nil //nolint:nilerr // there is none, or it is the session's by now
	}
	// A process that still has it open keeps no blocks.
	if err := errors.Join(v.Close(), os.Truncate(v.Image(), 0)); err != nil {
		return fmt.Errorf("give up a volume made ahead: %w", err)
	}
	return os.Remove(v.Image())
}

// Close closes a volume that no sandbox uses any more and returns unused blocks to the
// disk. If that fails, the volume only takes more of the disk than it needs.
func (s *Store) Close(v Volume) error {
	s.balancer.remove(v)
	there, err := mount.Is(v.Mountpoint())
	if err != nil {
		return err
	}
	if !there || !s.balancer.supported {
		return v.Close()
	}
	_, unbalanced := v.balance(restHeadroom, 0, 1)
	done, busy := v.LockCleanup(canceled) // old workspaces may still be removed
	if busy == nil {
		defer done()
	}
	if err := v.Close(); err != nil {
		return err
	}
	if unbalanced == nil {
		unbalanced = v.CheckFailed()
	}
	if unbalanced == nil && busy == nil {
		unbalanced = v.shrink()
	}
	if unbalanced != nil {
		s.log.Warn("unused blocks of a session not returned", "session", v.Session, "error", unbalanced)
	}
	return nil
}

// canceled is for taking a lock only if it is free.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it is over already
	cancel()
	return ctx
}()

// Discard unmounts a volume that is going to be removed, without syncing it. A process
// that still has it open keeps no blocks.
func (s *Store) Discard(v Volume) error {
	s.balancer.remove(v)
	if err := mount.UnmountAll(v.Mountpoint()); err != nil {
		return err
	}
	if err := os.Truncate(v.Image(), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// BackRunning allocates blocks for a volume that an older version of this program has left
// mounted, and turns off discard, which would return freed blocks at once.
func (s *Store) BackRunning(v Volume) {
	if there, err := mount.Is(v.Mountpoint()); err != nil || !there || !s.balancer.supported {
		return
	}
	if _, err := os.Lstat(v.ballast()); err == nil {
		return
	}
	err := unix.Mount("", v.Mountpoint(), "", unix.MS_REMOUNT|volumeFlags, "nodiscard")
	if err == nil {
		err = s.Back(v)
	}
	if err != nil {
		s.log.Warn("room for a session not reserved", "session", v.Session, "error", err)
	}
}
