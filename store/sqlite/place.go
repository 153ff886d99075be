package sqlite

import (
	"errors"
	"fmt"
	"os"
)

// errMoved means that what is written goes to files that nobody will find.
var errMoved = errors.New("the database or its log was removed or replaced while it was open")

// place is where the files of a database were when it was opened. They stay
// open whatever happens to their names, so only the names can tell.
type place map[string]os.FileInfo

func newPlace(database string) (place, error) {
	p := make(place)
	for _, path := range []string{database, database + "-wal"} {
		at, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		p[path] = at
	}
	return p, nil
}

// check reports whether the files still have their names.
func (p place) check() error {
	for path, then := range p {
		now, err := os.Stat(path)
		if err == nil && !os.SameFile(then, now) {
			err = errMoved
		}
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errMoved, err)
		}
		if err != nil {
			return fmt.Errorf("look for %s: %w", path, err)
		}
	}
	return nil
}
