//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/boot"
	"github.com/dormouse-run/dormouse/internal/dirlock"
	"github.com/dormouse-run/dormouse/internal/filemode"
	"github.com/dormouse-run/dormouse/internal/mount"
)

// Volume holds the files of a session: an ext4 image of its own where sizes are limited,
// else a plain directory. In it are
//
//	base/    the lowest layer, empty
//	upper/   the overlay's upper directory of the first workspace
//	work/    the overlay's work directory
//	ws/N/    the same two for workspace N
//	home/    the home directory
//	tmp/     /tmp
type Volume struct {
	Session dormouse.SessionID
	Dir     string // of the session
}

// Image is the file that the file system is in.
func (v Volume) Image() string { return filepath.Join(v.Dir, "volume.img") }

// Mountpoint is where the image is mounted, or the plain directory.
func (v Volume) Mountpoint() string { return filepath.Join(v.Dir, "volume") }

// Path is a directory in the volume while it is mounted.
func (v Volume) Path(name string) string { return filepath.Join(v.Mountpoint(), name) }

// Home is the home directory, which the sandbox writes to.
func (v Volume) Home() beneath.Tree { return beneath.At(v.Path("home")) }

// Tmp is /tmp, which the sandbox writes to.
func (v Volume) Tmp() beneath.Tree { return beneath.At(v.Path("tmp")) }

// Lock excludes everyone else, in any process, from creating, attaching to or ending a
// sandbox of the session.
func (v Volume) Lock(ctx context.Context) (unlock func(), err error) { return dirlock.Lock(ctx, v.Dir) }

// makeDirs creates the directories that every volume has.
func (v Volume) makeDirs() error {
	for _, dir := range []string{v.Path("base"), v.Home().Host()} {
		if err := filemode.MkdirAll(dir); err != nil {
			return fmt.Errorf("open volume: %w", err)
		}
	}
	err := os.Mkdir(v.Tmp().Host(), 0o700)
	if err == nil {
		err = os.Chmod(v.Tmp().Host(), 0o777|fs.ModeSticky)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open volume: %w", err)
	}
	return nil
}

// SyncName makes the name of the volume durable: a power cut must not lose a volume whose
// content was synced.
func (v Volume) SyncName() error {
	return errors.Join(atomicfile.SyncDir(v.Dir), atomicfile.SyncDir(filepath.Dir(v.Dir)))
}

// Mount mounts the volume if there is one, and reports whether there is.
func (v Volume) Mount() (there bool, err error) {
	_, err = os.Stat(v.Image())
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(v.Mountpoint())
		return err == nil, nil
	}
	if err == nil {
		there, err = mount.Is(v.Mountpoint())
	}
	if err == nil && !there {
		err = v.mountImage()
	}
	if err != nil {
		return false, fmt.Errorf("open volume: %w", err)
	}
	return true, nil
}

func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// IsMounted reports whether an image is mounted at the mountpoint: free space there is
// meaningless otherwise.
func (v Volume) IsMounted() (bool, error) {
	var at, beside unix.Stat_t
	err := unix.Stat(v.Mountpoint(), &at)
	if err == nil {
		err = unix.Stat(v.Dir, &beside)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && at.Dev != beside.Dev, err
}

// Available reports whether the files can be accessed.
func (v Volume) Available() (bool, error) {
	_, err := os.Lstat(v.Image())
	if err == nil {
		return v.IsMounted()
	}
	if errors.Is(err, fs.ErrNotExist) { // they may lie in a plain directory
		_, err = os.Lstat(v.Mountpoint())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// MountOpened mounts a volume here that a server in another mount namespace has opened. It
// does nothing if no server has.
func (v Volume) MountOpened() error {
	dev, err := loopDevice(v.Image())
	if err != nil || dev == nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	err = os.MkdirAll(v.Mountpoint(), 0o700)
	if err == nil {
		err = mountLoop(v.Image(), v.Mountpoint())
	}
	if err != nil {
		return fmt.Errorf("mount what another server has opened: %w", err)
	}
	return nil
}

// Close syncs and unmounts the volume. If it returns nil and Sync has not failed,
// everything is on the disk.
func (v Volume) Close() error {
	there, err := mount.Is(v.Mountpoint())
	if err != nil {
		return err
	}
	if !there {
		if err := v.markClosed(); err != nil {
			return err
		}
		return mount.UnmountAll(v.Mountpoint())
	}
	failed := v.Sync() // a failure is noted, and returned to the next that opens the volume
	if err := mount.UnmountAll(v.Mountpoint()); err != nil || failed != nil {
		return err
	}
	return v.markSynced()
}

// markSynced notes that a volume was synced when it was closed, if others still have it
// mounted: after a power cut its superblock would say that it was in use.
func (v Volume) markSynced() error {
	dev, err := loopDevice(v.Image())
	if err != nil || dev == nil {
		return err
	}
	return errors.Join(dev.Close(), atomicfile.Write(v.CopiedNote(), nil, 0o600))
}

// markOpened notes the boot during which files in a plain directory are in use. An ext4
// image says so in its superblock.
func (v Volume) markOpened() error {
	now, err := boot.ID()
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(v.openedNote()); err == nil && string(was) == now {
		return nil
	}
	return atomicfile.Write(v.openedNote(), []byte(now), 0o600)
}

// markClosed notes that files in a plain directory are not in use any more. If they were
// in use during another boot they were never closed, and the note stays until they are
// recovered.
func (v Volume) markClosed() error {
	was, err := os.ReadFile(v.openedNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	now, wrong := boot.ID()
	if err := errors.Join(err, wrong); err != nil || string(was) != now {
		return err
	}
	if err := v.Sync(); err != nil {
		return nil //nolint:nilerr // it is noted, and returned to the next that opens the volume
	}
	return os.Remove(v.openedNote())
}

// Sync makes the files durable. After a sync has failed no later one is believed: the
// kernel drops the dirty pages and still shows them as if they were written.
func (v Volume) Sync() error {
	if err := v.CheckFailed(); err != nil {
		return fmt.Errorf("sync volume: %w", err)
	}
	f, err := os.Open(v.Mountpoint())
	if err != nil {
		return fmt.Errorf("sync volume: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = unix.Syncfs(int(f.Fd()))
	if aborted := v.aborted(); aborted != nil {
		err = aborted
	}
	if err != nil {
		return fmt.Errorf("sync volume: %w", v.fail(err))
	}
	return nil
}

// Quiesce returns once no process writes to the volume of a hibernated session and
// everything is in its image. None can begin to while the session is locked.
func (v Volume) Quiesce(ctx context.Context) error {
	done, err := v.LockCleanup(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := v.CheckSound(); err != nil {
		return err
	}
	if _, err := v.Mount(); err != nil {
		return err
	}
	return errors.Join(v.Sync(), v.Close())
}
