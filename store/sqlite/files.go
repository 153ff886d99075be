package sqlite

import (
	"errors"
	"fmt"
	"os"
)

// errReplaced means that writes go to files that no reader will find.
var errReplaced = errors.New("the database or its log was removed or replaced while it was open")

// openFiles are the files of a database as they were when it was opened, by path. An open
// file stays usable after it was removed or replaced, so only its path shows that.
type openFiles map[string]os.FileInfo

func statFiles(database string) (openFiles, error) {
	files := make(openFiles)
	for _, path := range []string{database, database + "-wal"} {
		at, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		files[path] = at
	}
	return files, nil
}

// check reports whether the files still have their names.
func (f openFiles) check() error {
	for path, then := range f {
		now, err := os.Stat(path)
		if err == nil && !os.SameFile(then, now) {
			err = errReplaced
		}
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errReplaced, err)
		}
		if err != nil {
			return fmt.Errorf("look for %s: %w", path, err)
		}
	}
	return nil
}
