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
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
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
		return v.replace(r, size, errors.New("its volume is gone"))
	} else if err != nil {
		return err
	}
	if err := v.forgetCached(ctx); err != nil {
		return err
	}
	err := v.repair(ctx, r.Condition == sandbox.Failed)
	if errors.Is(err, errUnreadable) && ctx.Err() == nil {
		return v.replace(r, size, err)
	}
	return err
}

// forgetCached waits until nobody shows a volume, and drops what is remembered of it.
func (v volume) forgetCached(ctx context.Context) error {
	for {
		dev, err := showing(v.image())
		if err != nil {
			return err
		}
		if dev == nil {
			break
		}
		_ = dev.Close()
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
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
		return nil //nolint:nilerr // nobody can tell
	}
	if state.none {
		return errUnreadable
	}
	dev, err := attachLoop(v.image())
	if err != nil {
		return nil //nolint:nilerr // nobody can tell
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

// replace puts an empty volume in the place of one that cannot be read, or is gone. It has
// the same size, or the usual one if that is not known.
func (v volume) replace(r *sandbox.Recovered, usual int64, why error) error {
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
	old, there := os.Stat(v.image())
	return []func() error{
		func() error {
			if err := v.noteCondition(sandbox.Failed, r.Reason); err != nil {
				return err // a new volume is sound by itself, and not recovered
			}
			r.Condition = sandbox.Failed
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
			err := v.writeRecovered(r)
			crash.At(crash.AsideNoted)
			return err
		},
		func() error {
			var size int64
			if there == nil {
				size = old.Size()
			} else if at, err := os.Stat(r.Aside); err == nil {
				size = at.Size()
			}
			err := makeFileSystem(v.fresh(), dormouse.Limits{Disk: cmp.Or(size, usual, math.MaxInt64)})
			crash.At(crash.AsideMade)
			return err
		},
		func() error {
			if there != nil {
				return nil
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
	entries, _ := os.ReadDir(v.dir) //nolint:gosec // a session id is a file name
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(v.image())+asideName) {
			all = append(all, filepath.Join(v.dir, e.Name()))
		}
	}
	slices.Sort(all)
	return all
}

// undoAside takes back what was begun and not finished to set a volume aside: it is in its
// place, and is looked at once more.
func (v volume) undoAside(r *sandbox.Recovered) error {
	if err := os.Remove(v.fresh()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
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
	r.Aside = ""
	r.Reason, _, _ = strings.Cut(r.Reason, notReadable)
	return nil
}
