//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/mount"
)

// repair mounts a volume that was not unmounted. Its journal is replayed; if it has errors
// or that does not help, e2fsck checks all of it. It returns errCorrupt only if the file
// system itself is the reason.
func (v Volume) repair(ctx context.Context, failed bool) error {
	state, err := readSuperblock(v.Image())
	if err != nil {
		return err
	}
	if !failed && !state.errors {
		if err := mountLoop(v.Image(), v.Mountpoint()); !errors.Is(err, errCorrupt) {
			return err
		}
		if err := v.dropCaches(ctx); err != nil { // the device may take a moment to be detached
			return err
		}
	}
	if err := v.checkFileSystem(ctx); err != nil {
		return err
	}
	return mountLoop(v.Image(), v.Mountpoint())
}

// Exit codes of e2fsck, as bits. Any other end, such as a signal, says nothing of the file
// system.
const (
	fsckUncorrected = 4  // errors are left
	fsckCanceled    = 32 // it was cancelled
	fsckPasses      = 2  // what is left by one is corrected by the next
)

// checkFileSystem runs e2fsck on a volume that is not mounted anywhere.
func (v Volume) checkFileSystem(ctx context.Context) error {
	fsck, err := findTool("e2fsck")
	if err != nil {
		return nil //nolint:nilerr // it comes with mkfs.ext4; without it, the mount decides
	}
	for range fsckPasses {
		cmd := exec.CommandContext(ctx, fsck, "-f", "-y", v.Image()) //nolint:gosec // it is ours
		cmd.Env = []string{}
		var out []byte
		if out, err = cmd.CombinedOutput(); err == nil {
			return nil
		}
		exit, ended := errors.AsType[*exec.ExitError](err)
		err = fmt.Errorf("check the file system: %w: %.200s", err, strings.TrimSpace(string(out)))
		switch code := exitCode(exit, ended); {
		case code >= 0 && code < fsckUncorrected:
			return nil
		case code < 0 || code >= fsckCanceled:
			return err
		case code >= 2*fsckUncorrected: // it could not run: no memory, or no file system
			if unreadable := v.findCorrupt(); unreadable != nil {
				return errors.Join(unreadable, err)
			}
			return err
		}
	}
	return fmt.Errorf("%w: %w", errCorrupt, err)
}

// exitCode is negative if a program did not exit by itself.
func exitCode(exit *exec.ExitError, ended bool) int {
	if !ended {
		return -1
	}
	return exit.ExitCode()
}

// findCorrupt returns errCorrupt if there is no file system in the image or the kernel
// finds it corrupt, else nil. It writes nothing.
func (v Volume) findCorrupt() error {
	state, err := readSuperblock(v.Image())
	if err != nil {
		return nil
	}
	if state.none {
		return errCorrupt
	}
	dev, err := attachLoop(v.Image())
	if err != nil {
		return nil
	}
	defer func() { _ = dev.Close() }()
	err = asCorrupt(mount.At(dev.Name(), v.Mountpoint(), "ext4", volumeFlags|unix.MS_RDONLY, "noload"))
	if err == nil {
		err = mount.UnmountAll(v.Mountpoint())
	}
	if errors.Is(err, errCorrupt) {
		return err
	}
	return nil
}
