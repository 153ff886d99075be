// Package contract compares what a program promises to others, as lines of text, with a
// file that an earlier version wrote. Tests use it for every name that outlives a
// program: fields of JSON, routes, flags, columns.
//
// A line names things as they are on the wire or on the disk, never by the Go package or
// type they come from, so that code can be moved and renamed without touching the files.
package contract

import (
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "add what is new to the files of the contract; nothing is ever taken out")

// File has the lines that an earlier version promised.
type File struct {
	Path string
	// Grows reports whether a new line promises all that an old one did, and more. If it is
	// nil, no line may be replaced.
	Grows func(from, to string) bool
}

// Check fails if the lines are not those of the file. With -update it adds lines to the
// file, and still fails if one is missing: only a person takes a promise back.
func (f File) Check(t testing.TB, lines []string) {
	t.Helper()
	promised, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	gone, added := difference(promised, lines)
	if *update {
		if gone, err = f.add(promised, gone, added); err != nil {
			t.Fatal(err)
		}
		added = nil
	}
	for _, line := range gone {
		t.Errorf("%s: gone: %s\n\tothers rely on it; if it has to go, take the line out by hand", f.Path, line)
	}
	for _, line := range added {
		t.Errorf("%s: new: %s\n\trun the test with -update to promise it", f.Path, line)
	}
}

func (f File) read() ([]string, error) {
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) && *update {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' }), nil
}

// add writes the file with what is new in it, and returns what is gone and was not
// replaced by something that has grown out of it.
func (f File) add(promised, gone, added []string) (missing []string, err error) {
	kept := slices.Concat(promised, added)
	rest := slices.Clone(added)
	for _, line := range gone {
		grown := slices.IndexFunc(rest, func(to string) bool { return f.Grows != nil && f.Grows(line, to) })
		if grown < 0 {
			missing = append(missing, line)
			continue
		}
		rest = slices.Delete(rest, grown, grown+1)
		at := slices.Index(kept, line)
		kept = slices.Delete(kept, at, at+1)
	}
	slices.Sort(kept)
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o750); err != nil {
		return nil, err
	}
	return missing, os.WriteFile(f.Path, []byte(strings.Join(kept, "\n")+"\n"), 0o600)
}

// difference is the lines that only one side has. A line that is there twice is two
// promises.
func difference(before, after []string) (gone, added []string) {
	left := make(map[string]int)
	for _, line := range before {
		left[line]++
	}
	for _, line := range after {
		left[line]--
	}
	for _, line := range slices.Sorted(maps.Keys(left)) {
		for n := left[line]; n > 0; n-- {
			gone = append(gone, line)
		}
		for n := left[line]; n < 0; n++ {
			added = append(added, line)
		}
	}
	return gone, added
}
