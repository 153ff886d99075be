//go:build linux

package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

// SweepLeftovers removes what servers that were killed have left unfinished beside a
// volume: notes, and images that have no name yet. The session is locked, so that none of
// those is being made; notes of failures are written without the lock, and only old ones
// are abandoned.
func (v Volume) SweepLeftovers() error {
	marks := filepath.Join(v.Dir, "marks")
	errs := []error{atomicfile.Sweep(v.Dir)}
	for _, e := range entriesOf(marks) {
		errs = append(errs, atomicfile.Sweep(filepath.Join(marks, e.Name())))
	}
	for _, e := range entriesOf(v.Dir) {
		if strings.HasPrefix(e.Name(), filepath.Base(v.Image())) && strings.HasSuffix(e.Name(), unnamed) {
			errs = append(errs, os.Remove(filepath.Join(v.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// abandoned is how old something is of which its server, whichever it is, must be dead.
const abandoned = time.Hour

// SweepLeftovers removes what servers that were killed have left of their probes of the
// disk and of templates.
func (s *Store) SweepLeftovers(now time.Time) error {
	errs := []error{atomicfile.Sweep(s.dir)}
	for _, e := range entriesOf(s.dir) {
		template, probe := strings.HasPrefix(e.Name(), templatePrefix) && e.IsDir(), strings.HasPrefix(e.Name(), probePrefix)
		at, err := e.Info()
		if !template && !probe || err != nil || now.Sub(at.ModTime()) < abandoned {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		if template {
			err = (Volume{Dir: path}).Close()
		}
		if err == nil {
			err = os.RemoveAll(path)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// entriesOf lists a directory of the host, and nothing of one that cannot be read.
func entriesOf(dir string) []fs.DirEntry {
	entries, _ := os.ReadDir(dir)
	return entries
}
