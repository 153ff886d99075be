//go:build linux

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/mount"
)

// mountLoop mounts an ext4 image. The loop device is detached with the last mount, which
// may be later than ours: a kernel that was killed takes a moment, and a process that was
// started with a mount namespace of its own while the image was mounted keeps it for as
// long as it lives. Until then the file system is active, so that the same device is
// mounted again: two file systems must never write to one image.
func mountLoop(image, at string) error {
	dev, err := loopDevice(image)
	if err == nil && dev == nil {
		dev, err = attachLoop(image)
	}
	if err != nil {
		return fmt.Errorf("attach %s: %w", filepath.Base(image), err)
	}
	defer func() { _ = dev.Close() }()
	// Zeroing inode tables in the background would fill the holes of the image, and discard
	// would return freed blocks before the ballast holds them.
	return asCorrupt(mount.At(dev.Name(), at, "ext4", volumeFlags, "noinit_itable,nodiscard"))
}

// errCorrupt says that there is no file system, or one that is corrupt beyond repair.
var errCorrupt = errors.New("its file system cannot be read")

// asCorrupt wraps in errCorrupt the errors of a mount that are about the file system
// itself.
func asCorrupt(err error) error {
	for _, own := range []error{unix.EUCLEAN, unix.EBADMSG, unix.EINVAL} {
		if errors.Is(err, own) {
			return fmt.Errorf("%w: %w", errCorrupt, err)
		}
	}
	return err
}

const volumeFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME

// loopDevice opens the loop device of a file, and returns nil if it has none. The device
// stays while it is open.
func loopDevice(file string) (*os.File, error) {
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	shows := func(name string) bool {
		raw, err := os.ReadFile(name) // one that cannot be read was detached
		return err == nil && strings.TrimSuffix(string(raw), "\n") == file
	}
	for _, name := range devices {
		if !shows(name) {
			continue
		}
		dev, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(filepath.Dir(name))), os.O_RDWR, 0)
		switch {
		case errors.Is(err, unix.ENXIO): // it was detached meanwhile
			continue
		case err != nil:
			return nil, err
		case shows(name):
			return dev, nil
		}
		_ = dev.Close() // it has another file by now
	}
	return nil, nil //nolint:nilnil // it has none
}

func attachLoop(image string) (*os.File, error) {
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ctl.Close() }()
	for range 100 { // others may take the free one first
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) { // there is no node for it
			err = unix.Mknod(fmt.Sprintf("/dev/loop%d", n), unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))) //nolint:gosec // small numbers
			if err == nil || errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{
			Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}, //nolint:gosec // descriptors are small
		})
		if err == nil {
			return dev, nil
		}
		_ = dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("no loop device is free")
}

// loopMajor is the major number of loop devices.
const loopMajor = 7
