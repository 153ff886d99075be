//go:build linux

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/boot"
	"github.com/dormouse-run/dormouse/sandbox"
)

// Whether the files of a volume can be believed is read from its superblock, which says
// that it was not unmounted or that it has errors. What a superblock cannot say is noted
// beside the volume: that a write to the machine's own disk has failed, that files which
// were in use at a power cut are not recovered yet, and, for files in a plain directory,
// the boot during which they are in use. It is also noted that a session has an image, so
// that one that is gone is missed.

func (v Volume) failedNote() string { return filepath.Join(v.Dir, "failed") }
func (v Volume) CopiedNote() string { return filepath.Join(v.Dir, "copied") }
func (v Volume) cutNote() string    { return filepath.Join(v.Dir, "cut") }
func (v Volume) openedNote() string { return filepath.Join(v.Dir, "opened") }
func (v Volume) madeNote() string   { return filepath.Join(v.Dir, "made") }

// Condition is what the files of a session are worth, and why they are not sound.
func (v Volume) Condition() (sandbox.Condition, string, error) {
	why, failed, err := v.failure()
	if err != nil {
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	if failed {
		return sandbox.Failed, why, nil
	}
	if _, err := os.Lstat(v.Image()); errors.Is(err, fs.ErrNotExist) && v.isMissing() {
		return sandbox.Failed, "its volume is gone", nil
	}
	raw, err := os.ReadFile(v.cutNote())
	if err == nil {
		return sandbox.Cut, strings.TrimSpace(string(raw)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	c, why, err := v.imageCondition()
	if err != nil {
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	return c, why, nil
}

// imageCondition is the condition that an image says itself.
func (v Volume) imageCondition() (sandbox.Condition, string, error) {
	if _, err := os.Lstat(v.Image()); errors.Is(err, fs.ErrNotExist) {
		return v.plainCondition() // without searching all loop devices
	}
	// In this order: one that is detached in between was unmounted before.
	dev, err := loopDevice(v.Image())
	if err != nil {
		return "", "", err
	}
	if dev != nil {
		defer func() { _ = dev.Close() }()
	}
	state, err := readSuperblock(v.Image())
	if err != nil {
		return "", "", err
	}
	if dev != nil { // it is active: what is read is what was written, unless ext4 has aborted
		err := v.aborted()
		if err == nil && (state.errors || hasErrors(filepath.Base(dev.Name()))) { // it is mounted only in another namespace
			err = errAborted
		}
		if err != nil {
			return sandbox.Failed, err.Error(), nil
		}
		return sandbox.Sound, "", nil
	}
	switch {
	case state.errors:
		return sandbox.Failed, "its file system has met errors", nil
	case state.short:
		return sandbox.Failed, "the end of its volume is missing", nil
	case state.open && !v.isCopy():
		return sandbox.Cut, "its file system was not closed", nil
	}
	return sandbox.Sound, "", nil
}

// isCopy reports whether a volume is a copy of one that was mounted and synced, or was
// synced when it was closed while others had it mounted, and was not opened since. That
// its superblock says it is in use means nothing then.
func (v Volume) isCopy() bool {
	_, err := os.Lstat(v.CopiedNote())
	return err == nil
}

// MarkCopied notes that a volume is a copy of one that was mounted and synced.
func (v Volume) MarkCopied() error { return atomicfile.Write(v.CopiedNote(), nil, 0o600) }

// clearCopied removes that note: from now on the superblock counts.
func (v Volume) clearCopied() error {
	if !v.isCopy() {
		return nil
	}
	return errors.Join(os.Remove(v.CopiedNote()), atomicfile.SyncDir(v.Dir))
}

// plainCondition is the condition of files in a plain directory.
func (v Volume) plainCondition() (sandbox.Condition, string, error) {
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

// isMissing reports whether a session without an image had one: that is noted, or a
// recovery was begun and there are no plain files either.
func (v Volume) isMissing() bool {
	if _, err := os.Lstat(v.madeNote()); err == nil {
		return true
	}
	if entries, _ := os.ReadDir(v.Mountpoint()); len(entries) > 0 {
		return false
	}
	for _, note := range []string{v.failedNote(), v.cutNote(), v.recoveredNote()} {
		if _, err := os.Lstat(note); err == nil {
			return true
		}
	}
	return len(v.asides()) > 0
}

// markCreated notes that the session has an image. It is durable after SyncName.
func (v Volume) markCreated() error {
	f, err := os.OpenFile(v.madeNote(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// recordCondition notes a condition that the volume itself does not show any more once it
// is mounted or repaired.
func (v Volume) recordCondition(c sandbox.Condition, why string) error {
	note := v.cutNote()
	if c == sandbox.Failed {
		note = v.failedNote()
	}
	if _, err := os.Lstat(note); err == nil {
		return nil
	}
	return atomicfile.Write(note, []byte(why), 0o600)
}

// CheckSound refuses files that must be recovered first.
func (v Volume) CheckSound() error {
	condition, why, err := v.Condition()
	if err == nil && condition != sandbox.Sound {
		err = fmt.Errorf("%w: %s", sandbox.ErrUnsound, why)
	}
	return err
}

// mountImage mounts an image. One that is corrupt though it was unmounted has failed, and
// must be recovered.
func (v Volume) mountImage() error {
	err := mountLoop(v.Image(), v.Mountpoint())
	if errors.Is(err, errCorrupt) {
		_ = v.fail(err) // it is noted, or remembered
		err = fmt.Errorf("%w: %w", sandbox.ErrUnsound, err)
	}
	return err
}
