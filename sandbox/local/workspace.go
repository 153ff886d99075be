package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/sandbox"
)

// files is the workspaces of one session. Each is a directory of its own: one that
// is made from layers is a copy of what they show.
type files struct {
	session dormouse.SessionID
	dir     string // of all sessions' workspaces
	notes   string // of this session
}

func (d *Driver) filesOf(id dormouse.SessionID) files {
	return files{session: id, dir: filepath.Join(d.opts.Dir, workspaces), notes: filepath.Join(d.opts.Dir, sandboxes, string(id))}
}

// numbered separates a session from the number of its workspace. No id has it.
const numbered = "@"

// at is the path of a workspace.
func (f files) at(number uint64) string {
	name := string(f.session)
	if number > 0 {
		name += numbered + strconv.FormatUint(number, 10)
	}
	return filepath.Join(f.dir, name)
}

// marksAt is where the marks of the snapshots of a workspace are.
func (f files) marksAt(number uint64) string {
	return filepath.Join(f.notes, "marks", strconv.FormatUint(number, 10))
}

// latest is the workspace which a sandbox was started with last.
func (f files) latest() sandbox.Latest { return sandbox.Latest(filepath.Join(f.notes, "number")) }

// ready creates a workspace if it does not exist, atomically, and returns its path. Older
// ones stay.
func (f files) ready(ctx context.Context, w sandbox.Workspace) (string, error) {
	last, err := f.latest().Check(w)
	if err != nil {
		return "", err
	}
	at := f.at(w.Number)
	switch w.Number {
	case 0:
		return at, os.MkdirAll(at, 0o700)
	case last:
		return at, nil
	}
	return at, f.build(ctx, w)
}

// remove removes the workspaces of some numbers and what is noted of them.
func (f files) remove(which func(uint64) bool) error {
	found, err := filepath.Glob(filepath.Join(f.dir, string(f.session)+numbered+"*"))
	if err != nil {
		return err
	}
	numbers := map[uint64]bool{0: true}
	for _, name := range found {
		_, of, _ := strings.Cut(filepath.Base(name), numbered)
		of = strings.TrimSuffix(of, ".new")
		if n, err := strconv.ParseUint(of, 10, 64); err == nil {
			numbers[n] = true
		}
	}
	var errs []error
	for n := range numbers {
		if which(n) {
			errs = append(errs, os.RemoveAll(f.at(n)), os.RemoveAll(f.at(n)+".new"), os.RemoveAll(f.marksAt(n)))
		}
	}
	return errors.Join(errs...)
}
