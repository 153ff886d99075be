//go:build linux

package volume

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
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox"
)

// unrecorded are the failures that could not be noted beside their volumes, by directory:
// the kernel reports a failed write once, and a disk that fails may not take the note
// either.
var unrecorded failures

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

// fail notes that what was written to a volume may not be on the disk, which stays true
// until its files are recovered. The first reason stays. It returns the reason as
// ErrFailed. If the note cannot be written, this server remembers it and writes it later,
// and the volume's superblock is marked for the next server; files in a plain directory
// have none.
func (v Volume) fail(why error) error {
	err := fmt.Errorf("%w: %w", sandbox.ErrFailed, why)
	if _, there := os.Lstat(v.failedNote()); there == nil {
		return err
	}
	unrecorded.add(v.Dir, why.Error())
	if noted := v.writeFailure(why.Error()); noted != nil {
		return errors.Join(err, fmt.Errorf("note it: %w", noted), v.abort())
	}
	return err
}

func (v Volume) writeFailure(why string) error {
	if err := atomicfile.Write(v.failedNote(), []byte(why), 0o600); err != nil {
		return err
	}
	unrecorded.forget(v.Dir)
	return nil
}

// failure is why a volume has failed, if it has.
func (v Volume) failure() (why string, failed bool, err error) {
	if why, failed := unrecorded.of(v.Dir); failed {
		_ = v.writeFailure(why) // it stays remembered
		return why, true, nil
	}
	raw, err := os.ReadFile(v.failedNote())
	switch {
	case err == nil:
		return strings.TrimSpace(string(raw)), true, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	}
	return "", false, err
}

// CheckFailed returns why a volume has failed, as ErrFailed, and nil if it has not.
func (v Volume) CheckFailed() error {
	why, failed, err := v.failure()
	if err == nil && failed {
		err = fmt.Errorf("%w: %s", sandbox.ErrFailed, why)
	}
	return err
}

// ForgetRemoved forgets the failures of a volume that is removed.
func (v Volume) ForgetRemoved() { unrecorded.forget(v.Dir) }

// clearFailure removes every note that the files are not sound.
func (v Volume) clearFailure() error {
	var errs []error
	for _, name := range []string{v.failedNote(), v.cutNote(), v.openedNote()} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	unrecorded.forget(v.Dir)
	return errors.Join(append(errs, atomicfile.SyncDir(v.Dir))...)
}

// abort has ext4 refuse all writes and mark its superblock.
func (v Volume) abort() error {
	var at unix.Stat_t
	if err := unix.Stat(v.Mountpoint(), &at); err != nil || unix.Major(at.Dev) != loopMajor {
		return nil //nolint:nilerr // it is not open, or in a plain directory
	}
	return mount.At("", v.Mountpoint(), "", unix.MS_REMOUNT|volumeFlags, "abort")
}

// aborted says that ext4 has met errors: when it cannot write its journal it refuses all
// writes. Newer kernels count the errors, and older ones only show that it is read-only.
func (v Volume) aborted() error {
	var at unix.Stat_t
	if err := unix.Stat(v.Mountpoint(), &at); err != nil || unix.Major(at.Dev) != loopMajor {
		return nil //nolint:nilerr // it is not open, or in a plain directory
	}
	if hasErrors(fmt.Sprintf("loop%d", unix.Minor(at.Dev))) {
		return errAborted
	}
	var of unix.Statfs_t
	if err := unix.Statfs(v.Mountpoint(), &of); err == nil && of.Flags&unix.ST_RDONLY != 0 {
		return errors.New("its file system has given up its journal")
	}
	return nil
}

var errAborted = errors.New("its file system has met errors, and given up its journal")

// hasErrors reports whether the ext4 that is mounted from a device counts errors.
func hasErrors(device string) bool {
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", device, "errors_count"))
	return err == nil && strings.TrimSpace(string(count)) != "0"
}
