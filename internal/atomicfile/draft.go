package atomicfile

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
)

// tempPrefix begins the names of temporary files.
const tempPrefix = ".tmp-"

// Draft is a file that is being written and does not have its final name yet. The caller
// must call Drop; Commit before that gives it its name.
type Draft struct {
	how  File
	file *os.File
	over bool // committed or dropped
}

// Draft begins a file that is written piece by piece.
func (f File) Draft() (*Draft, error) {
	w, err := os.CreateTemp(cmp.Or(f.Temp, filepath.Dir(f.Path)), tempPrefix+"*")
	if err != nil {
		return nil, err
	}
	return &Draft{how: f, file: w}, nil
}

// Write adds to the file.
func (d *Draft) Write(p []byte) (int, error) { return d.file.Write(p) }

// Commit makes path hold what was written, durably, or leaves it as it was.
func (d *Draft) Commit(path string) error {
	if err := d.finish(path); err != nil {
		return errors.Join(err, d.Drop())
	}
	d.reached(Renamed)
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	d.reached(Durable)
	return nil
}

// finish makes what was written durable and gives it its name.
func (d *Draft) finish(path string) error {
	if err := d.file.Chmod(d.how.Perm); err != nil {
		return err
	}
	d.reached(Written)
	if err := d.file.Sync(); err != nil {
		return err
	}
	d.reached(Synced)
	if err := d.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(d.file.Name(), path); err != nil {
		return err
	}
	d.over = true
	return nil
}

// Drop removes the file unless it was committed.
func (d *Draft) Drop() error {
	if d.over {
		return nil
	}
	d.over = true
	err := d.file.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, os.Remove(d.file.Name()))
}

func (d *Draft) reached(s Step) {
	if d.how.After != nil {
		d.how.After(s)
	}
}
