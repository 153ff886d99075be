//go:build linux

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
)

var _ sandbox.Brancher = (*Driver)(nil)

// branchesDir has what sessions begin with that are branches: a volume and a memory
// image, until the first sandbox of the session takes them.
const branchesDir = "branches"

// branchFor is how long such a thing is kept for a session that nobody knows: one
// whose server ended before it was recorded.
const branchFor = time.Hour

func (d *Driver) legacy(of dormouse.SessionID) volume {
	return volume{session: of, dir: filepath.Join(d.path(branchesDir), string(of))}
}

// Branch copies what a session sleeps with for another. The memory itself is shared:
// nobody writes to it. The files are another's from then on.
func (d *Driver) Branch(ctx context.Context, from dormouse.SessionID, generation uint64, to dormouse.SessionID) error {
	if err := errors.Join(from.Validate(), to.Validate()); err != nil {
		return err
	}
	if err := d.branch(ctx, d.volumeOf(from), generation, d.legacy(to)); err != nil {
		return fmt.Errorf("branch %s: %w", from, err)
	}
	return nil
}

func (d *Driver) branch(ctx context.Context, v volume, generation uint64, to volume) (err error) {
	if _, err := os.Stat(v.dir); errors.Is(err, fs.ErrNotExist) {
		return sandbox.ErrNothingKept
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	im, err := v.readImage()
	if err != nil {
		return err
	}
	r, err := v.readRecord()
	if err != nil {
		return err
	}
	if im == nil || im.Lost != "" || im.Generation != generation || r != nil {
		return sandbox.ErrNothingKept
	}
	fresh := volume{session: to.session, dir: to.dir + ".new"}
	if err := errors.Join(os.RemoveAll(fresh.dir), os.MkdirAll(fresh.imageDir(), 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh.dir)) }()
	if err := v.calm(ctx); err != nil {
		return err
	}
	if err := copyVolume(v.image(), fresh.image()); err != nil {
		return err
	}
	if err := atomicfile.Write(fresh.copiedNote(), nil, 0o600); err != nil {
		return err
	}
	if err := im.branch(fresh.imageDir()); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(to.dir), os.Rename(fresh.dir, to.dir)); err != nil {
		return err
	}
	crash.At(crash.BranchCopied)
	return atomicfile.SyncDir(filepath.Dir(to.dir))
}

// calm returns once nobody writes to the volume of a session that sleeps, and all
// that was written is in its file. Nobody can begin to while the session is locked.
func (v volume) calm(ctx context.Context) error {
	done, err := v.clears(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := v.sound(); err != nil {
		return err
	}
	if _, err := v.show(); err != nil {
		return err
	}
	return errors.Join(v.sync(), v.close())
}

// copyVolume copies the file system of a session that sleeps, durably: all of it that
// was ever written, or nothing where the machine can share it until it is.
func copyVolume(from, to string) error {
	_, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its files have no volume of their own, as they do with a limited size: %w", sandbox.ErrNothingKept)
	}
	if err == nil && clone(from, to) != nil {
		err = copySparse(from, to)
	}
	if err != nil {
		return err
	}
	return syncFile(to)
}

// clone makes a file that shares all blocks of another, where that is possible.
func clone(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(unix.IoctlFileClone(int(out.Fd()), int(in.Fd())), out.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(to))
	}
	return err
}

// branch makes an image of the same memory for the first sandbox of a session, with a
// secret of its own.
func (im image) branch(dir string) error {
	for _, f := range im.Files {
		if err := os.Link(filepath.Join(im.dir, f.Name), filepath.Join(dir, f.Name)); err != nil {
			return fmt.Errorf("share the memory image: %w", err)
		}
	}
	im.Generation, im.Workspace, im.Secret = 0, 0, newSecret()
	raw, err := json.Marshal(im) //nolint:gosec // only we can read it, and it is worth nothing outside
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, imageNote), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the memory image: %w", err)
	}
	return nil
}

// inherit gives a session what it begins with, if it is a branch that begins with
// something. Whoever is cut off goes on here.
func (d *Driver) inherit(v volume) error {
	from := d.legacy(v.session)
	if _, err := os.Stat(from.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The volume is the last: a session that has one has had its sandbox.
	if _, err := os.Stat(v.image()); errors.Is(err, fs.ErrNotExist) {
		for _, move := range [][2]string{{from.copiedNote(), v.copiedNote()}, {from.imageDir(), v.imageDir()}, {from.image(), v.image()}} {
			if err := os.Rename(move[0], move[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("inherit what ran: %w", err)
			}
			crash.At(crash.BranchInherited)
		}
	}
	if err := errors.Join(atomicfile.SyncDir(v.dir), os.RemoveAll(from.dir)); err != nil {
		return fmt.Errorf("inherit what ran: %w", err)
	}
	return nil
}

// sweepBranches removes what was made for sessions that never came to be.
func (d *Driver) sweepBranches(owned func(dormouse.SessionID) sandbox.Owned, now time.Time) error {
	entries, err := os.ReadDir(d.path(branchesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep branches: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < branchFor {
			continue
		}
		if id, made := strings.CutSuffix(e.Name(), ".new"); !made {
			if o := owned(dormouse.SessionID(id)); o.Known || o.Unsure {
				continue
			}
		}
		errs = append(errs, os.RemoveAll(filepath.Join(d.path(branchesDir), e.Name())))
	}
	return errors.Join(errs...)
}
