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
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/boot"
)

// Baselines keeps what a directory was like at its last captures, by name. A mark is
// good for that very directory and until the machine starts anew: what was not
// synced then may be older than it seems. A mark that is not good is none, which
// costs a capture of everything and is never wrong. Where the directory was synced
// before it was marked, marks also tell, after another start of the machine, what was
// synced.
type Baselines struct {
	Dir string // where marks are kept
	Of  string // the directory they are of
}

// maxBaselines is how many marks there are of a directory.
const maxBaselines = 2

// Read returns the index of a mark, nil if there is none that is good.
func (m Baselines) Read(name string, l Limits) Index {
	raw, err := os.ReadFile(filepath.Join(m.Dir, name))
	if err != nil {
		return nil
	}
	about, err := m.identity()
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
func (m Baselines) Write(name string, all Index, since string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%.40q names no mark", name)
	}
	about, err := m.identity()
	if err == nil {
		err = os.MkdirAll(m.Dir, 0o700)
	}
	if err == nil {
		err = m.orderTimes(time.Now())
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(m.Dir, name), append(about, all.Encode()...), 0o600)
	}
	if err == nil {
		err = m.prune(name, since)
	}
	if err != nil {
		return fmt.Errorf("mark a point: %w", err)
	}
	return nil
}

// Synced is what the directory was like at a point, what it was like when it was last
// synced after that, and when it was last synced at all, whenever the machine was
// started. What is not known is nil, or zero.
func (m Baselines) Synced(point string, l Limits) (at, later Index, when time.Time) {
	marks, err := m.newestFirst("")
	if err != nil || len(marks) == 0 {
		return nil, nil, time.Time{}
	}
	if marks[0].Name() != point {
		later = m.readAnyBoot(marks[0].Name(), l)
	}
	return m.readAnyBoot(point, l), later, marks[0].ModTime()
}

// readAnyBoot is Read of a mark, whenever the machine was started.
func (m Baselines) readAnyBoot(name string, l Limits) Index {
	raw, err := os.ReadFile(filepath.Join(m.Dir, name))
	if err != nil {
		return nil
	}
	about, raw, _ := bytes.Cut(raw, []byte("\n"))
	now, err := m.identity()
	if err != nil {
		return nil
	}
	_, is, _ := bytes.Cut(bytes.TrimSpace(now), []byte(" "))
	if _, was, _ := bytes.Cut(about, []byte(" ")); !bytes.Equal(was, is) {
		return nil // it was of another directory
	}
	all, err := DecodeIndex(raw, l)
	if err != nil {
		return nil
	}
	return all
}

// prune removes all marks but the last, the one that it was compared with, and the
// newest of the others as long as there is room.
func (m Baselines) prune(last, since string) error {
	marks, err := m.newestFirst(last)
	if err != nil {
		return err
	}
	slices.SortStableFunc(marks, func(a, b fs.FileInfo) int {
		switch since {
		case a.Name():
			return -1
		case b.Name():
			return 1
		}
		return 0
	})
	for _, old := range marks[min(maxBaselines-1, len(marks)):] {
		if err := os.Remove(filepath.Join(m.Dir, old.Name())); err != nil {
			return err
		}
	}
	torn, err := filepath.Glob(filepath.Join(m.Dir, ".*")) // of who was cut off while he wrote one
	for _, name := range torn {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// orderTimes has all marks be older than one that is written now, though the clock may have
// been set back since they were: which is the last is told by their times.
func (m Baselines) orderTimes(now time.Time) error {
	marks, err := m.newestFirst("")
	if err != nil {
		return err
	}
	const tick = 20 * time.Millisecond // file systems are behind the clock by less
	for _, mark := range marks {
		now = now.Add(-tick)
		if mark.ModTime().Before(now) {
			return nil
		}
		f, err := os.Open(filepath.Join(m.Dir, mark.Name()))
		if err != nil {
			return err
		}
		if err := errors.Join(os.Chtimes(f.Name(), now, now), f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// newestFirst lists all marks but one. What a write that was cut off has left is none.
func (m Baselines) newestFirst(but string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return nil, err
	}
	var marks []fs.FileInfo
	for _, e := range entries {
		if i, err := e.Info(); err == nil && e.Name() != but && !strings.HasPrefix(e.Name(), ".") {
			marks = append(marks, i)
		}
	}
	slices.SortFunc(marks, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	return marks, nil
}

// identity says which directory a mark is of, and when.
func (m Baselines) identity() ([]byte, error) {
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
