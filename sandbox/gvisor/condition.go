//go:build linux

package gvisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/boot"
	"github.com/dormouse-run/dormouse/sandbox"
)

// Whether the files of a volume can be believed is asked of the file system in it,
// which says for itself that it was not closed, or that it has met errors. What it
// cannot say is noted beside it: that the machine's own disk did not take what was
// written, that files which were cut off are not recovered yet, and, where the files lie in a plain directory, during which boot that
// was opened.

func (v volume) failedNote() string { return filepath.Join(v.dir, "failed") }
func (v volume) copiedNote() string { return filepath.Join(v.dir, "copied") }
func (v volume) cutNote() string    { return filepath.Join(v.dir, "cut") }
func (v volume) openedNote() string { return filepath.Join(v.dir, "opened") }

// condition is what the files of a session are worth, and why they are not sound.
func (v volume) condition() (sandbox.Condition, string, error) {
	raw, err := os.ReadFile(v.failedNote())
	switch {
	case err == nil:
		return sandbox.Failed, strings.TrimSpace(string(raw)), nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	if raw, err := os.ReadFile(v.cutNote()); err == nil {
		return sandbox.Cut, strings.TrimSpace(string(raw)), nil
	}
	c, why, err := v.inUse()
	if err != nil {
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	return c, why, nil
}

func (v volume) inUse() (sandbox.Condition, string, error) {
	if _, err := os.Lstat(v.image()); errors.Is(err, fs.ErrNotExist) { //nolint:gosec // a session id is a file name
		return v.opened() // without a look at every loop device there is
	}
	// Asked in this order: one that is let go of meanwhile was closed before.
	dev, err := showing(v.image())
	if err != nil {
		return "", "", err
	}
	if dev != nil {
		defer func() { _ = dev.Close() }()
	}
	state, err := readFileSystem(v.image())
	if err != nil {
		return "", "", err
	}
	if dev != nil { // it is open, and what is read is what was written, unless it gave up
		if err := v.gaveUp(); err != nil {
			return sandbox.Failed, err.Error(), nil
		}
		return sandbox.Sound, "", nil
	}
	switch {
	case state.errors:
		return sandbox.Failed, "its file system has met errors", nil
	case state.open && !v.copied():
		return sandbox.Cut, "its file system was not closed", nil
	}
	return sandbox.Sound, "", nil
}

// copied reports whether a volume is a copy of one that was open and synced, or was synced
// when it was closed while others still had it mounted, and nobody has opened it since:
// that its file system was not closed says nothing then.
func (v volume) copied() bool {
	_, err := os.Lstat(v.copiedNote())
	return err == nil
}

// forgetCopied says that a volume is open by itself from now on.
func (v volume) forgetCopied() error {
	if !v.copied() {
		return nil
	}
	return errors.Join(os.Remove(v.copiedNote()), atomicfile.SyncDir(v.dir))
}

// opened is the condition of files in a plain directory.
func (v volume) opened() (sandbox.Condition, string, error) {
	was, err := os.ReadFile(v.openedNote())
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Sound, "", nil
	}
	now, wrong := boot.ID()
	if err = errors.Join(err, wrong); err != nil {
		return "", "", err
	}
	if string(was) != now {
		return sandbox.Cut, "the machine has started anew", nil
	}
	return sandbox.Sound, "", nil
}

// fail notes that what was written to a volume may not be on the disk, which stays
// true until its files are recovered. What is known already stays the reason. It
// returns why, as ErrFailed.
func (v volume) fail(why error) error {
	err := fmt.Errorf("%w: %w", sandbox.ErrFailed, why)
	if _, there := os.Lstat(v.failedNote()); there == nil { //nolint:gosec // a session id is a file name
		return err
	}
	return errors.Join(err, atomicfile.Write(v.failedNote(), []byte(why.Error()), 0o600))
}

// failed is why a volume has failed, as ErrFailed, and nil if it has not.
func (v volume) failed() error {
	raw, err := os.ReadFile(v.failedNote()) //nolint:gosec // as above
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s", sandbox.ErrFailed, strings.TrimSpace(string(raw)))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// gaveUp says that the file system of a volume has met errors: when it cannot write
// its journal it takes nothing any more. It counts them itself, of which older kernels
// show no more than that it is read-only.
func (v volume) gaveUp() error {
	const loopDevices = 7
	var at unix.Stat_t
	if err := unix.Stat(v.at(), &at); err != nil || unix.Major(at.Dev) != loopDevices {
		return nil //nolint:nilerr // it is not open, or in a plain directory
	}
	count, err := os.ReadFile(fmt.Sprintf("/sys/fs/ext4/loop%d/errors_count", unix.Minor(at.Dev)))
	if err == nil && strings.TrimSpace(string(count)) != "0" {
		return errors.New("its file system has met errors, and given up its journal")
	}
	var of unix.Statfs_t
	if err := unix.Statfs(v.at(), &of); err == nil && of.Flags&unix.ST_RDONLY != 0 {
		return errors.New("its file system has given up its journal")
	}
	return nil
}

// fileSystem is what a file system in a file says of itself.
type fileSystem struct {
	open   bool // it was not closed since it was last written to
	errors bool // it has met some
}

// readFileSystem reads the superblock of ext4.
func readFileSystem(image string) (fileSystem, error) {
	const (
		start, size   = 1024, 1024
		magicAt       = 0x38
		stateAt       = 0x3a
		incompatAt    = 0x60
		errorState    = 0x2
		needsRecovery = 0x4
	)
	f, err := os.Open(image)
	if err != nil {
		return fileSystem{}, err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, size)
	if _, err := f.ReadAt(block, start); err != nil {
		return fileSystem{errors: true}, nil // there is none any more
	}
	if binary.LittleEndian.Uint16(block[magicAt:]) != unix.EXT4_SUPER_MAGIC {
		return fileSystem{errors: true}, nil
	}
	return fileSystem{
		open:   binary.LittleEndian.Uint32(block[incompatAt:])&needsRecovery != 0,
		errors: binary.LittleEndian.Uint16(block[stateAt:])&errorState != 0,
	}, nil
}
