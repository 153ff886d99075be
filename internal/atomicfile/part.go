package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WritePart lets fill write a file that has its name only when it is durable. Until then it
// is called path.part, so that what a kill leaves the next try replaces.
func WritePart(path string, fill func(io.Writer) error) error {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if err := os.Rename(part, path); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return SyncDir(filepath.Dir(path))
}
