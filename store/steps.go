package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// ErrNewer means that a newer program has used the database.
var ErrNewer = errors.New("database is of a newer version")

// Step is one change of a schema. Steps are added, never edited.
type Step struct {
	Version int
	Name    string
	Text    string
}

// Steps reads the changes of a schema, each from a file migrations/NUMBER_NAME.sql.
// The numbers have no gap.
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
		all = append(all, Step{version, name, string(text)})
	}
	return all, nil
}

// Missing are the steps that a schema which is at a step has not had.
func Missing(all []Step, at int) ([]Step, error) {
	if at > len(all) {
		return nil, fmt.Errorf("schema is at step %d and this program knows %d; use the program that wrote it or a newer one: %w", at, len(all), ErrNewer)
	}
	return all[at:], nil
}
