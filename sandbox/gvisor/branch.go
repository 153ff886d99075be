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

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

var _ sandbox.Brancher = (*Driver)(nil)

// branchesDir has what branches begin with: a volume and a memory image, until the first
// sandbox of the session takes them.
const branchesDir = "branches"

// keepBranches is how long those are kept for an unknown session: its server was killed
// before the session was recorded.
const keepBranches = time.Hour

func (d *Driver) branchDir(of dormouse.SessionID) sessionDir {
	return sessionDir{volume.Volume{Session: of, Dir: filepath.Join(d.path(branchesDir), string(of))}}
}

// Branch copies the volume and the memory image of a hibernated session for another. The
// memory files are hard links, since they are never written to.
func (d *Driver) Branch(ctx context.Context, from dormouse.SessionID, generation uint64, to dormouse.SessionID) error {
	if err := errors.Join(from.Validate(), to.Validate()); err != nil {
		return err
	}
	if err := d.branch(ctx, d.session(from), generation, d.branchDir(to)); err != nil {
		return fmt.Errorf("branch %s: %w", from, err)
	}
	return nil
}

func (d *Driver) branch(ctx context.Context, v sessionDir, generation uint64, to sessionDir) (err error) {
	if _, err := os.Stat(v.Dir); errors.Is(err, fs.ErrNotExist) {
		return sandbox.ErrNoMemoryImage
	}
	unlock, err := v.Lock(ctx)
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
		return sandbox.ErrNoMemoryImage
	}
	fresh := sessionDir{volume.Volume{Session: to.Session, Dir: to.Dir + ".new"}}
	if err := errors.Join(os.RemoveAll(fresh.Dir), os.MkdirAll(fresh.imageDir(), 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh.Dir)) }()
	if err := v.Quiesce(ctx); err != nil {
		return err
	}
	if err := volume.Copy(v.Image(), fresh.Image()); err != nil {
		return err
	}
	if err := fresh.MarkCopied(); err != nil {
		return err
	}
	if err := im.branch(fresh.imageDir()); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(to.Dir), os.Rename(fresh.Dir, to.Dir)); err != nil {
		return err
	}
	crash.At(crash.BranchCopied)
	return atomicfile.SyncDir(filepath.Dir(to.Dir))
}

// branch makes an image of the same memory for the first sandbox of a session, with a
// secret of its own.
func (im memoryImage) branch(dir string) error {
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

// takeBranch gives a branch what it begins with, if anything. An interrupted call is
// continued by the next.
func (d *Driver) takeBranch(v sessionDir) error {
	from := d.branchDir(v.Session)
	if _, err := os.Stat(from.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The volume is moved last: a session that has one is complete.
	if _, err := os.Stat(v.Image()); errors.Is(err, fs.ErrNotExist) {
		for _, move := range [][2]string{{from.CopiedNote(), v.CopiedNote()}, {from.imageDir(), v.imageDir()}, {from.Image(), v.Image()}} {
			if err := os.Rename(move[0], move[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("inherit what ran: %w", err)
			}
			crash.At(crash.BranchInherited)
		}
	}
	if err := errors.Join(atomicfile.SyncDir(v.Dir), os.RemoveAll(from.Dir)); err != nil {
		return fmt.Errorf("inherit what ran: %w", err)
	}
	return nil
}

// sweepBranches removes what was made for sessions that were never recorded.
func (d *Driver) sweepBranches(owned func(dormouse.SessionID) sandbox.Ownership, now time.Time) error {
	entries, err := os.ReadDir(d.path(branchesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep branches: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < keepBranches {
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
