package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// ErrNewer means that a newer program has used the database, and that this one must
// leave it alone.
var ErrNewer = errors.New("database is of a newer version")

// Step is one change of a schema. Steps are added, never edited.
type Step struct {
	Version int
	Name    string
	Text    string
	// Least is how many steps a program must know to use a database that has had this
	// one. It is 0 of the first steps, which do not say it: no program that does not know
	// them opens a database that has them.
	Least int
}

// Breaking reports whether a program that knows only the steps before this one must not
// use the database any more.
func (s Step) Breaking() bool { return s.Least == 0 || s.Least >= s.Version }

const (
	// undeclared is the last step that does not say what it needs.
	undeclared = 8
	// declaration is how the first line of every later step begins.
	declaration = "-- opens from: "
)

// Steps reads the changes of a schema, each from a file migrations/NUMBER_NAME.sql.
// The numbers have no gap. The first line of a file says with how many known steps a
// program may open a database that has had this one:
//
//	-- opens from: 9
//
// A step that only adds what older programs need not write leaves that number as it is
// in the step before. One after which an older program would read or write something
// wrong names itself.
func Steps(files fs.FS) ([]Step, error) {
	const dir = "migrations"
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	all := make([]Step, 0, len(entries))
	for i, e := range entries {
		number, name, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", e.Name(), i+1)
		}
		text, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read migrations: %w", err)
		}
		least, err := declared(version, string(text))
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", e.Name(), err)
		}
		all = append(all, Step{Version: version, Name: name, Text: string(text), Least: least})
	}
	return all, nil
}

// declared reads how many steps a program must know after this one.
func declared(version int, text string) (int, error) {
	if version <= undeclared {
		return 0, nil
	}
	line, _, _ := strings.Cut(text, "\n")
	number, ok := strings.CutPrefix(line, declaration)
	if !ok {
		return 0, fmt.Errorf("its first line does not say %q", declaration+"N")
	}
	least, err := strconv.Atoi(number)
	if err != nil || least <= undeclared || least > version {
		return 0, fmt.Errorf("it opens from %q, which is not a step from %d to itself", number, undeclared+1)
	}
	return least, nil
}

// Schema is what a database says of its steps.
type Schema struct {
	// At is the last step that it has had, 0 if it has had none.
	At int
	// Least is how many steps a program must know to use it.
	Least int
}

// Missing are the steps that a schema has not had. A schema that has had steps which
// this program does not know misses none, if it may be used without knowing them, and
// is refused with ErrNewer if not.
func Missing(all []Step, s Schema) ([]Step, error) {
	if s.Least > len(all) {
		return nil, fmt.Errorf("schema is at step %d and needs a program that knows step %d, and this one knows %d; use the program that wrote it or a newer one: %w",
			s.At, s.Least, len(all), ErrNewer)
	}
	return all[min(s.At, len(all)):], nil
}
