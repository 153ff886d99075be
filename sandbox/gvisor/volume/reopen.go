//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/sandbox"
)

// reopen mounts a volume as it is on the disk: the page cache may have what never was
// there. If its file system is corrupt beyond repair the volume is set aside and replaced
// by an empty one, and so it is if it is gone. With any other error the volume stays as it
// is, and the recovery is tried again later.
func (v Volume) reopen(ctx context.Context, r *sandbox.Recovered, size int64) error {
	if err := v.Close(); err != nil {
		return err
	}
	if err := v.undoAside(r); err != nil {
		return err
	}
	if _, err := os.Stat(v.Image()); errors.Is(err, fs.ErrNotExist) {
		if !v.isMissing() {
			return os.MkdirAll(v.Mountpoint(), 0o700) // a plain directory
		}
		return v.setAside(r, size, errors.New("its volume is gone"))
	} else if err != nil {
		return err
	}
	if err := v.dropCaches(ctx); err != nil {
		return err
	}
	err := v.repair(ctx, r.Condition == sandbox.Failed)
	if errors.Is(err, errCorrupt) && ctx.Err() == nil {
		return v.setAside(r, size, err)
	}
	return err
}

// busyFor is how long a volume may stay mounted after its sandbox has ended. A kernel that
// was killed takes a moment. A process that has it longer has a mount namespace of its own
// and was started while the volume was mounted, and may have it for ever.
const busyFor = 2 * time.Second

// dropCaches has all later reads of a volume come from the disk. If another process keeps
// its file system active, the volume is replaced by a copy of what is on the disk.
func (v Volume) dropCaches(ctx context.Context) error {
	for until := time.Now().Add(busyFor); ; {
		dev, err := loopDevice(v.Image())
		if err != nil {
			return err
		}
		if dev == nil {
			break
		}
		_ = dev.Close()
		if time.Now().After(until) {
			return v.replaceWithCopy(ctx)
		}
		if err := sleep.For(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("somebody still has the volume open: %w", err)
		}
	}
	f, err := os.OpenFile(v.Image(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	// Dirty pages are written if they can be, and are dropped then.
	_ = f.Sync()
	return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}

// replaceWithCopy replaces a volume whose file system others keep active, which can
// neither be repaired nor read again from the disk. They keep a file without a name and
// without blocks.
func (v Volume) replaceWithCopy(ctx context.Context) error {
	if err := v.stopWrites(); err != nil {
		return fmt.Errorf("somebody still has the volume open: %w", err)
	}
	old, err := os.OpenFile(v.Image(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = old.Close() }()
	_ = old.Sync() // dirty pages are written if they can be
	if err := copyFromDisk(ctx, old, v.copyPath()); err != nil {
		return fmt.Errorf("copy the volume that somebody still has open: %w", err)
	}
	if err := errors.Join(os.Rename(v.copyPath(), v.Image()), atomicfile.SyncDir(v.Dir)); err != nil {
		return err
	}
	_ = old.Truncate(0)
	return nil
}

// copyPath is where that copy is made.
func (v Volume) copyPath() string { return v.Image() + ".copy" }

// stopWrites makes a file system that is active somewhere read-only.
func (v Volume) stopWrites() (err error) {
	dev, err := loopDevice(v.Image())
	if err != nil || dev == nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	if err := os.MkdirAll(v.Mountpoint(), 0o700); err != nil {
		return err
	}
	writable := mount.At(dev.Name(), v.Mountpoint(), "ext4", volumeFlags, "") == nil
	if !writable { // it is read-only already
		err = mount.At(dev.Name(), v.Mountpoint(), "ext4", volumeFlags|unix.MS_RDONLY, "")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mount.UnmountAll(v.Mountpoint())) }()
	if !writable || mount.At("", v.Mountpoint(), "", unix.MS_REMOUNT|unix.MS_RDONLY|volumeFlags, "") == nil {
		return nil
	}
	return v.abort() // it has aborted, or a process writes to it
}
