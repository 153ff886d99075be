//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/boot"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox"
)

// Whether the files of a volume can be believed is asked of the file system in it,
// which says for itself that it was not closed, or that it has met errors. What it
// cannot say is noted beside it: that the machine's own disk did not take what was
// written, that files which were cut off are not recovered yet, and, where the files lie
// in a plain directory, during which boot that was opened. Which of the two a session has
// is noted as well: files that lay in a volume are not missed silently.

func (v volume) failedNote() string { return filepath.Join(v.dir, "failed") }
func (v volume) copiedNote() string { return filepath.Join(v.dir, "copied") }
func (v volume) cutNote() string    { return filepath.Join(v.dir, "cut") }
func (v volume) openedNote() string { return filepath.Join(v.dir, "opened") }
func (v volume) madeNote() string   { return filepath.Join(v.dir, "made") }

// condition is what the files of a session are worth, and why they are not sound.
func (v volume) condition() (sandbox.Condition, string, error) {
	why, failed, err := v.failure()
	if err != nil {
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	if failed {
		return sandbox.Failed, why, nil
	}
	if _, err := os.Lstat(v.image()); errors.Is(err, fs.ErrNotExist) && v.gone() {
		return sandbox.Failed, "its volume is gone", nil
	}
	raw, err := os.ReadFile(v.cutNote())
	if err == nil {
		return sandbox.Cut, strings.TrimSpace(string(raw)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	c, why, err := v.inUse()
	if err != nil {
		return "", "", fmt.Errorf("read the condition of a volume: %w", err)
	}
	return c, why, nil
}

func (v volume) inUse() (sandbox.Condition, string, error) {
	if _, err := os.Lstat(v.image()); errors.Is(err, fs.ErrNotExist) {
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
		err := v.gaveUp()
		if err == nil && (state.errors || metErrors(filepath.Base(dev.Name()))) { // it is open elsewhere alone
			err = errGaveUp
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

// gone reports whether a session without a volume had one: it is noted, or was begun to be
// recovered and is in no plain directory either.
func (v volume) gone() bool {
	if _, err := os.Lstat(v.madeNote()); err == nil {
		return true
	}
	if entries, _ := os.ReadDir(v.at()); len(entries) > 0 {
		return false
	}
	for _, note := range []string{v.failedNote(), v.cutNote(), v.recoveredNote()} {
		if _, err := os.Lstat(note); err == nil {
			return true
		}
	}
	return len(v.allAside()) > 0
}

// noteMade notes that the files of a session lie in a volume. It is durable after
// syncName.
func (v volume) noteMade() error {
	f, err := os.OpenFile(v.madeNote(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// noteCondition notes a condition that the volume says itself only until it is opened or
// repaired.
func (v volume) noteCondition(c sandbox.Condition, why string) error {
	note := v.cutNote()
	if c == sandbox.Failed {
		note = v.failedNote()
	}
	if _, err := os.Lstat(note); err == nil {
		return nil
	}
	return atomicfile.Write(note, []byte(why), 0o600)
}

// unnoted are the failures that could not be noted beside their volumes, by directory:
// the kernel reports a failed write once, and the disk that did not take it may not take
// the note either.
var unnoted failures

type failures struct {
	mu  sync.Mutex
	why map[string]string // guarded by mu
}

func (f *failures) of(dir string) (why string, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	why, failed = f.why[dir]
	return why, failed
}

// add keeps the first failure of a volume.
func (f *failures) add(dir, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, failed := f.why[dir]; failed {
		return
	}
	if f.why == nil {
		f.why = make(map[string]string)
	}
	f.why[dir] = why
}

func (f *failures) forget(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.why, dir)
}

// fail notes that what was written to a volume may not be on the disk, which stays
// true until its files are recovered. What is known already stays the reason. It
// returns why, as ErrFailed. If the note cannot be written, this server remembers it and
// writes it later, and the volume's own file system is marked as failed, for the next
// server: files in a plain directory have none.
func (v volume) fail(why error) error {
	err := fmt.Errorf("%w: %w", sandbox.ErrFailed, why)
	if _, there := os.Lstat(v.failedNote()); there == nil { //nolint:gosec // a session id is a file name
		return err
	}
	unnoted.add(v.dir, why.Error())
	if noted := v.noteFailure(why.Error()); noted != nil {
		return errors.Join(err, fmt.Errorf("note it: %w", noted), v.abort())
	}
	return err
}

func (v volume) noteFailure(why string) error {
	if err := atomicfile.Write(v.failedNote(), []byte(why), 0o600); err != nil {
		return err
	}
	unnoted.forget(v.dir)
	return nil
}

// failure is why a volume has failed, if it has.
func (v volume) failure() (why string, failed bool, err error) {
	if why, failed := unnoted.of(v.dir); failed {
		_ = v.noteFailure(why) // it stays remembered
		return why, true, nil
	}
	raw, err := os.ReadFile(v.failedNote()) //nolint:gosec // a session id is a file name
	switch {
	case err == nil:
		return strings.TrimSpace(string(raw)), true, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	}
	return "", false, err
}

// failed is why a volume has failed, as ErrFailed, and nil if it has not.
func (v volume) failed() error {
	why, failed, err := v.failure()
	if err == nil && failed {
		err = fmt.Errorf("%w: %s", sandbox.ErrFailed, why)
	}
	return err
}

// loopDevices is their major number.
const loopDevices = 7

// abort has the file system of a volume take nothing any more, and remember that it has
// met errors.
func (v volume) abort() error {
	var at unix.Stat_t
	if err := unix.Stat(v.at(), &at); err != nil || unix.Major(at.Dev) != loopDevices {
		return nil //nolint:nilerr // it is not open, or in a plain directory
	}
	return mount.At("", v.at(), "", unix.MS_REMOUNT|volumeFlags, "abort")
}

// gaveUp says that the file system of a volume has met errors: when it cannot write
// its journal it takes nothing any more. It counts them itself, of which older kernels
// show no more than that it is read-only.
func (v volume) gaveUp() error {
	var at unix.Stat_t
	if err := unix.Stat(v.at(), &at); err != nil || unix.Major(at.Dev) != loopDevices {
		return nil //nolint:nilerr // it is not open, or in a plain directory
	}
	if metErrors(fmt.Sprintf("loop%d", unix.Minor(at.Dev))) {
		return errGaveUp
	}
	var of unix.Statfs_t
	if err := unix.Statfs(v.at(), &of); err == nil && of.Flags&unix.ST_RDONLY != 0 {
		return errors.New("its file system has given up its journal")
	}
	return nil
}

var errGaveUp = errors.New("its file system has met errors, and given up its journal")

// metErrors reports whether the file system that is open on a device counts errors.
func metErrors(device string) bool {
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", device, "errors_count"))
	return err == nil && strings.TrimSpace(string(count)) != "0"
}

// mount mounts a volume. One whose file system cannot be read has failed, though it says
// that it was closed, and is recovered before it is opened again.
func (v volume) mount() error {
	err := mountLoop(v.image(), v.at())
	if errors.Is(err, errUnreadable) {
		_ = v.fail(err) // it is noted, or remembered
		err = fmt.Errorf("%w: %w", sandbox.ErrUnsound, err)
	}
	return err
}
