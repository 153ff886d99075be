package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// abandoned is how long a temporary file must not have been written to before its process
// is assumed dead. No small file takes that long to write; if one does, its rename fails,
// and its writer is told.
const abandoned = time.Hour

// Sweep removes the temporary files that killed processes have left in a directory, and
// leaves those of writers that may live, of whatever process. A directory that does not
// exist has none.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) || !e.Type().IsRegular() {
			continue
		}
		at, err := e.Info()
		if err == nil && time.Since(at.ModTime()) > abandoned {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
