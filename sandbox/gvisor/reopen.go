//go:build linux

package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// fresh is where a volume is made that takes the place of another.
func (v volume) fresh() string { return v.image() + ".fresh" }

// reopen makes the files of a volume reachable as the disk has them: what the machine
// remembers of them may never have been there. If its file system is beyond repair, the
// volume is set aside, and there is an empty one; so there is if it is gone. With any
// other error the volume stays as it is, and it is tried again later.
func (v volume) reopen(ctx context.Context, r *sandbox.Recovered, size int64) error {
	if err := v.close(); err != nil {
		return err
	}
	if err := v.undoAside(r); err != nil {
		return err
	}
	if _, err := os.Stat(v.image()); errors.Is(err, fs.ErrNotExist) {
		if !v.gone() {
			return os.MkdirAll(v.at(), 0o700) // a plain directory
		}
		return v.setAside(r, size, errors.New("its volume is gone"))
	} else if err != nil {
		return err
	}
	if err := v.forgetCached(ctx); err != nil {
		return err
	}
	err := v.repair(ctx, r.Condition == sandbox.Failed)
	if errors.Is(err, errUnreadable) && ctx.Err() == nil {
		return v.setAside(r, size, err)
	}
	return err
}

// heldFor is how long a volume may be open after its sandbox has ended: a kernel that was
// ended lets go of it in a moment. Who still has it then has nothing to do with it, and may
// have it for ever: whatever was started on this machine with mounts of its own while it
// was mounted.
const heldFor = 2 * time.Second

// forgetCached has what is read of a volume from here on come from the disk. If somebody
// holds on to its file system, it becomes a copy of what the disk has.
func (v volume) forgetCached(ctx context.Context) error {
	for until := time.Now().Add(heldFor); ; {
		dev, err := showing(v.image())
		if err != nil {
			return err
		}
		if dev == nil {
			break
		}
		_ = dev.Close()
		if time.Now().After(until) {
			return v.leaveBehind(ctx)
		}
		if err := sleep.For(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("somebody still has the volume open: %w", err)
		}
	}
	f, err := os.OpenFile(v.image(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	// What is dirty is written if it can be; then nothing of it is worth keeping.
	_ = f.Sync()
	return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}

// leaveBehind puts a copy of a volume in its place whose file system others hold on to: it
// can neither be repaired while they do, nor read again from the disk. They keep a file
// that has no name and no room any more.
func (v volume) leaveBehind(ctx context.Context) error {
	if err := v.quiesce(); err != nil {
		return fmt.Errorf("somebody still has the volume open: %w", err)
	}
	old, err := os.OpenFile(v.image(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = old.Close() }()
	_ = old.Sync() // what is dirty is written if it can be
	if err := copyFromDisk(ctx, old, v.copy()); err != nil {
		return fmt.Errorf("copy the volume that somebody still has open: %w", err)
	}
	if err := errors.Join(os.Rename(v.copy(), v.image()), atomicfile.SyncDir(v.dir)); err != nil {
		return err
	}
	_ = old.Truncate(0)
	return nil
}

// copy is where that is made.
func (v volume) copy() string { return v.image() + ".copy" }

// quiesce has the file system of a volume that is open somewhere write nothing any more.
func (v volume) quiesce() (err error) {
	dev, err := showing(v.image())
	if err != nil || dev == nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	if err := os.MkdirAll(v.at(), 0o700); err != nil {
		return err
	}
	writable := mountAt(dev.Name(), v.at(), "ext4", volumeFlags, "") == nil
	if !writable { // it is read-only already
		err = mountAt(dev.Name(), v.at(), "ext4", volumeFlags|unix.MS_RDONLY, "")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmountUnder(v.at())) }()
	if !writable || mountAt("", v.at(), "", unix.MS_REMOUNT|unix.MS_RDONLY|volumeFlags, "") == nil {
		return nil
	}
	return v.abort() // it has given up, or somebody writes to it
}

// copyFromDisk copies a file without the holes in it, durably, as the disk has it and not
// as the machine remembers it. It fails with dormouse.ErrFull if there is no room.
func copyFromDisk(ctx context.Context, old *os.File, to string) (err error) {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if clone(old.Name(), to) == nil {
		return syncFile(to)
	}
	info, err := old.Stat()
	if err != nil {
		return err
	}
	on, err := diskOf(filepath.Dir(to))
	if err != nil {
		return err
	}
	const sector = 512
	if at, ok := info.Sys().(*syscall.Stat_t); ok && at.Blocks*sector > on.opening() {
		return errNoRoom(at.Blocks*sector, on.opening())
	}
	in, err := openDirect(old)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = layer.Full(errors.Join(err, os.Remove(to)))
		}
	}()
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	const step = 1 << 20
	buf, err := unix.Mmap(-1, 0, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned as the disk wants it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(buf)) }()
	err = eachData(in, info.Size(), func(_, start, end int64) error {
		const block = 4096
		for at := start / block * block; at < end; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n, err := unix.Pread(int(in.Fd()), buf[:min(step, (end-at+block-1)/block*block)], at)
			if err == nil && n > 0 {
				_, err = out.WriteAt(buf[:n], at)
			}
			if err != nil {
				return err
			}
			if at += int64(n); n == 0 || n%block != 0 {
				return nil // the end of the file
			}
		}
		return nil
	})
	if err == nil {
		err = out.Sync()
	}
	return err
}

// openDirect opens a file once more, for reads that go to the disk; where a file system
// has no such reads, what is remembered of the file is dropped first.
func openDirect(f *os.File) (*os.File, error) {
	in, err := os.OpenFile(f.Name(), os.O_RDONLY|unix.O_DIRECT, 0)
	if !errors.Is(err, unix.EINVAL) {
		return in, err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return nil, err
	}
	return os.Open(f.Name())
}

// repair opens a volume whose file system was not closed: one that was cut off is put
// right by its own journal, and one that has met errors, or that the journal does not put
// right, by the tool that looks at all of it. It returns errUnreadable only if the file
// system itself is the reason.
func (v volume) repair(ctx context.Context, failed bool) error {
	state, err := readFileSystem(v.image())
	if err != nil {
		return err
	}
	if !failed && !state.errors {
		if err := mountLoop(v.image(), v.at()); !errors.Is(err, errUnreadable) {
			return err
		}
		if err := v.forgetCached(ctx); err != nil { // the device may be there a moment longer
			return err
		}
	}
	if err := v.checkFileSystem(ctx); err != nil {
		return err
	}
	return mountLoop(v.image(), v.at())
}

// What the tool that checks a file system says with its exit code, as bits. Any other
// end, a signal among them, says nothing of the file system.
const (
	fsckUncorrected = 4  // errors are left
	fsckCanceled    = 32 // somebody ended it
	fsckPasses      = 2  // what is left by one is corrected by the next
)

// checkFileSystem has the file system of a volume that nobody has open put right.
func (v volume) checkFileSystem(ctx context.Context) error {
	fsck, err := findTool("e2fsck")
	if err != nil {
		return nil //nolint:nilerr // it comes with the tool that made the volume; without, the mount decides
	}
	for range fsckPasses {
		cmd := exec.CommandContext(ctx, fsck, "-f", "-y", v.image()) //nolint:gosec // it is ours
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
		case code >= 2*fsckUncorrected: // it could not do its work: for want of memory, or because there is no file system
			if unreadable := v.looksUnreadable(); unreadable != nil {
				return errors.Join(unreadable, err)
			}
			return err
		}
	}
	return fmt.Errorf("%w: %w", errUnreadable, err)
}

// exitCode is negative if a program did not exit by itself.
func exitCode(exit *exec.ExitError, ended bool) int {
	if !ended {
		return -1
	}
	return exit.ExitCode()
}

// looksUnreadable says that there is no file system in a volume, or that the kernel finds
// it damaged, and nil of any other. Nothing is written to it.
func (v volume) looksUnreadable() error {
	state, err := readFileSystem(v.image())
	if err != nil {
		return nil
	}
	if state.none {
		return errUnreadable
	}
	dev, err := attachLoop(v.image())
	if err != nil {
		return nil
	}
	defer func() { _ = dev.Close() }()
	err = corrupt(mountAt(dev.Name(), v.at(), "ext4", volumeFlags|unix.MS_RDONLY, "noload"))
	if err == nil {
		err = unmountUnder(v.at())
	}
	if errors.Is(err, errUnreadable) {
		return err
	}
	return nil
}

// setAside keeps a volume that cannot be used any more for people, if it is not gone, and
// puts an empty one in its place, of the same size, or of the usual one if that is not
// known. What its condition was is noted: the new one is sound by itself.
func (v volume) setAside(r *sandbox.Recovered, usual int64, why error) error {
	for _, step := range v.replacing(r, usual, why) {
		if err := step(); err != nil {
			return errors.Join(why, err)
		}
	}
	return mountLoop(v.image(), v.at())
}

// replacing are the steps of that. After each of them there is the old volume or the new
// one, and where the old one is kept is noted before it has that name: whoever is cut off
// goes on with what undoAside finds.
func (v volume) replacing(r *sandbox.Recovered, usual int64, why error) []func() error {
	_, there := os.Stat(v.image())
	return []func() error{
		func() error {
			r.Reason, _, _ = strings.Cut(r.Reason, notReadable)
			r.Reason += notReadable + why.Error()
			if r.Aside != "" && there == nil {
				r.Reason += "; one before is " + r.Aside
			}
			if there == nil {
				r.Aside = v.nextAside()
			} else if all := v.allAside(); len(all) > 0 { // a program before this one ended on the way
				r.Aside = all[len(all)-1]
			}
			r.Fresh = true // undoAside takes it back if the old one is still there
			err := v.writeRecovered(r)
			crash.At(crash.AsideNoted)
			return err
		},
		func() error {
			size := sizeOf(v.image())
			if there != nil {
				size = sizeOf(r.Aside)
			}
			err := makeFileSystem(v.fresh(), dormouse.Limits{Disk: cmp.Or(size, usual, math.MaxInt64)})
			crash.At(crash.AsideMade)
			return err
		},
		func() error {
			if there != nil {
				return nil //nolint:nilerr // there is none to keep
			}
			err := errors.Join(os.Link(v.image(), r.Aside), atomicfile.SyncDir(v.dir))
			crash.At(crash.AsideNamed)
			return err
		},
		func() error {
			err := errors.Join(os.MkdirAll(v.at(), 0o700), os.Rename(v.fresh(), v.image()), v.noteMade(), atomicfile.SyncDir(v.dir))
			crash.At(crash.AsideReplaced)
			return err
		},
	}
}

// notReadable is between why a volume was to be recovered and why it could not be.
const notReadable = ", and could not be read any more: "

// asideName is what a volume is called that is kept for people, before the time.
const asideName = ".failed-"

// nextAside is a name for one that nobody has.
func (v volume) nextAside() string {
	name := v.image() + asideName + time.Now().UTC().Format(markTime)
	for n := 1; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name
		}
		name = fmt.Sprintf("%s%s%s-%d", v.image(), asideName, time.Now().UTC().Format(markTime), n)
	}
}

// allAside are the volumes of a session that are kept for people, the newest last.
func (v volume) allAside() []string {
	entries, _ := os.ReadDir(v.dir)
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(v.image())+asideName) {
			all = append(all, filepath.Join(v.dir, e.Name()))
		}
	}
	slices.Sort(all)
	return all
}

// undoAside takes back what was begun and not finished to put another volume in the place
// of one: it is still there, and is looked at once more.
func (v volume) undoAside(r *sandbox.Recovered) error {
	for _, name := range []string{v.fresh(), v.copy()} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if r.Aside == "" {
		return nil
	}
	aside, err := os.Stat(r.Aside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		image, err := os.Stat(v.image())
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(aside, image) {
			return nil // the one in its place is new, or there is none
		}
		if err == nil {
			err = os.Remove(r.Aside)
		}
		if err != nil {
			return err
		}
	}
	r.Aside, r.Fresh = "", false
	r.Reason, _, _ = strings.Cut(r.Reason, notReadable)
	return nil
}

// enlarge puts a volume of the usual size in the place of one that a recovery has made too
// small, because the one that was set aside said nothing of its size. It reports whether
// that was so. The one that goes has nothing that the snapshot has not. After each step
// there is one of the two, and Fresh is true of both.
func (v volume) enlarge(r *sandbox.Recovered, usual int64) (bool, error) {
	was, err := readFileSystem(r.Aside)
	if errors.Is(err, fs.ErrNotExist) || err == nil && was.size > 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	size, err := volumeSize(v.dir, dormouse.Limits{Disk: cmp.Or(usual, math.MaxInt64)})
	if err != nil || sizeOf(v.image()) >= size {
		return false, err
	}
	if err := makeFileSystem(v.fresh(), dormouse.Limits{Disk: size}); err != nil {
		return false, err
	}
	if err := errors.Join(os.Rename(v.fresh(), v.image()), atomicfile.SyncDir(v.dir)); err != nil {
		return false, err
	}
	return true, mountLoop(v.image(), v.at())
}
