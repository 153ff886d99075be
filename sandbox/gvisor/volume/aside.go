//go:build linux

package volume

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
)

// freshPath is where a volume is made that replaces another.
func (v Volume) freshPath() string { return v.Image() + ".fresh" }

// setAside keeps a volume that cannot be used any more for people, unless it is gone, and
// replaces it by an empty one of the same size, or of the default size if that is unknown.
// Its condition is noted before: the new one is sound.
func (v Volume) setAside(r *sandbox.Recovered, usual int64, why error) error {
	for _, step := range v.replaceSteps(r, usual, why) {
		if err := step(); err != nil {
			return errors.Join(why, err)
		}
	}
	return mountLoop(v.Image(), v.Mountpoint())
}

// replaceSteps are the steps of setAside. After each of them there is the old volume or
// the new one, and the name under which the old one is kept is noted before it has that
// name: undoAside finds out how far an interrupted replacement got.
func (v Volume) replaceSteps(r *sandbox.Recovered, usual int64, why error) []func() error {
	_, there := os.Stat(v.Image())
	return []func() error{
		func() error {
			r.Reason, _, _ = strings.Cut(r.Reason, notReadable)
			r.Reason += notReadable + why.Error()
			if r.Aside != "" && there == nil {
				r.Reason += "; one before is " + r.Aside
			}
			if there == nil {
				r.Aside = v.nextAside()
			} else if all := v.asides(); len(all) > 0 { // an older version of this program was killed in between
				r.Aside = all[len(all)-1]
			}
			r.Fresh = true // undoAside resets it if the old one is still in place
			err := v.writeRecovered(r)
			crash.At(crash.AsideNoted)
			return err
		},
		func() error {
			size := createdSize(v.Image())
			if there != nil {
				size = createdSize(r.Aside)
			}
			err := makeFileSystem(v.freshPath(), dormouse.Limits{Disk: cmp.Or(size, usual, math.MaxInt64)})
			crash.At(crash.AsideMade)
			return err
		},
		func() error {
			if there != nil {
				return nil //nolint:nilerr // there is none to keep
			}
			err := errors.Join(os.Link(v.Image(), r.Aside), atomicfile.SyncDir(v.Dir))
			crash.At(crash.AsideNamed)
			return err
		},
		func() error {
			err := errors.Join(os.MkdirAll(v.Mountpoint(), 0o700), os.Rename(v.freshPath(), v.Image()), v.markCreated(), atomicfile.SyncDir(v.Dir))
			crash.At(crash.AsideReplaced)
			return err
		},
	}
}

// notReadable is between why a volume had to be recovered and why it could not be.
const notReadable = ", and could not be read any more: "

// asideName is in the name of a volume that is set aside, before the time.
const asideName = ".failed-"

// nextAside is an unused name for a volume that is set aside.
func (v Volume) nextAside() string {
	name := v.Image() + asideName + time.Now().UTC().Format(markTime)
	for n := 1; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name
		}
		name = fmt.Sprintf("%s%s%s-%d", v.Image(), asideName, time.Now().UTC().Format(markTime), n)
	}
}

// asides are the volumes of a session that were set aside, the newest last.
func (v Volume) asides() []string {
	entries, _ := os.ReadDir(v.Dir)
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(v.Image())+asideName) {
			all = append(all, filepath.Join(v.Dir, e.Name()))
		}
	}
	slices.Sort(all)
	return all
}

// undoAside undoes a replacement that was interrupted while the old volume was still in
// place. The volume is then checked again.
func (v Volume) undoAside(r *sandbox.Recovered) error {
	for _, name := range []string{v.freshPath(), v.copyPath()} {
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
		image, err := os.Stat(v.Image())
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(aside, image) {
			return nil // it was replaced, or is gone
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

// enlarge replaces a volume that the recovery made too small because the one it set aside
// did not say its size, and reports whether that was so. The small one has nothing that
// the snapshot does not have. After each step there is one of the two, and Fresh is true
// of both.
func (v Volume) enlarge(r *sandbox.Recovered, usual int64) (bool, error) {
	was, err := readSuperblock(r.Aside)
	if errors.Is(err, fs.ErrNotExist) || err == nil && was.size > 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	size, err := volumeSize(v.Dir, dormouse.Limits{Disk: cmp.Or(usual, math.MaxInt64)})
	if err != nil || createdSize(v.Image()) >= size {
		return false, err
	}
	if err := makeFileSystem(v.freshPath(), dormouse.Limits{Disk: size}); err != nil {
		return false, err
	}
	if err := errors.Join(os.Rename(v.freshPath(), v.Image()), atomicfile.SyncDir(v.Dir)); err != nil {
		return false, err
	}
	return true, mountLoop(v.Image(), v.Mountpoint())
}
