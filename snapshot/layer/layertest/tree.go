//go:build linux

package layertest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// List describes a tree, one line for each name, in order.
func List(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			name += "/"
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			name += " -> " + to
		case e.Type().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name += " = " + string(text)
		default:
			name += " ? " + e.Type().String()
		}
		found = append(found, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// WantTree compares a tree with its description, given as lines.
func WantTree(t testing.TB, dir, want string) {
	t.Helper()
	got := List(t, dir)
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(got)
	slices.Sort(lines)
	if !slices.Equal(got, lines) {
		t.Errorf("tree:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}
