//go:build linux

package layer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/boot"
)

// Marks keeps what a directory was like at its last captures, by name. A mark is
// good for that very directory and until the machine starts anew: what was not
// synced then may be older than it seems. A mark that is not good is none, which
// costs a capture of everything and is never wrong.
type Marks struct {
	Dir string // where marks are kept
	Of  string // the directory they are of
}

// kept is how many marks there are of a directory.
const kept = 2

// Read returns the index of a mark, nil if there is none that is good.
func (m Marks) Read(name string, l Limits) Index {
	raw, err := os.ReadFile(filepath.Join(m.Dir, name))
	if err != nil {
		return nil
	}
	about, err := m.about()
	if err != nil {
		return nil
	}
	raw, ok := bytes.CutPrefix(raw, about)
	if !ok {
		return nil
	}
	all, err := DecodeIndex(raw, l)
	if err != nil {
		return nil
	}
	return all
}

// Write keeps an index, and that of the point it was compared with: whether the new
// one becomes a point is decided later. It lets go of the others, the oldest first.
func (m Marks) Write(name string, all Index, since string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%.40q names no mark", name)
	}
	about, err := m.about()
	if err == nil {
		err = os.MkdirAll(m.Dir, 0o700)
	}
	temp := filepath.Join(m.Dir, ".new")
	if err == nil {
		err = os.WriteFile(temp, append(about, all.Encode()...), 0o600)
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(m.Dir, name))
	}
	if err == nil {
		err = m.trim(name, since)
	}
	if err != nil {
		return fmt.Errorf("mark a point: %w", errors.Join(err, ignoreMissing(os.Remove(temp))))
	}
	return nil
}

// trim removes all marks but the last, the one that it was compared with, and the
// newest of the others as long as there is room.
func (m Marks) trim(last, since string) error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	var marks []fs.FileInfo
	for _, e := range entries {
		if i, err := e.Info(); err == nil && e.Name() != last && !strings.HasPrefix(e.Name(), ".") {
			marks = append(marks, i)
		}
	}
	slices.SortFunc(marks, func(a, b fs.FileInfo) int {
		switch since {
		case a.Name():
			return -1
		case b.Name():
			return 1
		}
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, old := range marks[min(kept-1, len(marks)):] {
		if err := os.Remove(filepath.Join(m.Dir, old.Name())); err != nil {
			return err
		}
	}
	return nil
}

// about says which directory a mark is of, and when.
func (m Marks) about() ([]byte, error) {
	now, err := boot.ID()
	if err != nil {
		return nil, err
	}
	var at unix.Stat_t
	if err := unix.Stat(m.Of, &at); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: m.Of, Err: err}
	}
	return fmt.Appendf(nil, "%s inode %d\n", now, at.Ino), nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
