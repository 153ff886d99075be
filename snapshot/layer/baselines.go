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

// Baselines stores the indexes of a directory at its last captures, by the name of the
// snapshot. The next capture compares with one of them. A baseline is valid for that very
// directory and until the machine reboots: what was not synced by then may be older than
// it seems. Without a valid baseline everything is captured, which costs time and is
// never wrong. If the directory was synced before its baseline was written, the baseline
// also tells, after a reboot, what had been synced.
type Baselines struct {
	Dir string // where they are stored
	Of  string // the directory that they describe
}

// maxBaselines is how many baselines of a directory are stored.
const maxBaselines = 2

// Read returns a baseline, nil if there is no valid one.
func (m Baselines) Read(name string, l Limits) Index {
	raw, err := os.ReadFile(filepath.Join(m.Dir, name))
	if err != nil {
		return nil
	}
	head, err := m.identity()
	if err != nil {
		return nil
	}
	raw, ok := bytes.CutPrefix(raw, head)
	if !ok {
		return nil
	}
	all, err := DecodeIndex(raw, l)
	if err != nil {
		return nil
	}
	return all
}

// Write stores an index as the baseline of a snapshot. It also retains the baseline since,
// which the index was compared with, because whether the snapshot is recorded is decided
// later. Of the others it removes the oldest.
func (m Baselines) Write(name string, all Index, since string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%.40q is no name of a baseline", name)
	}
	head, err := m.identity()
	if err == nil {
		err = os.MkdirAll(m.Dir, 0o700)
	}
	if err == nil {
		err = m.orderTimes(time.Now())
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(m.Dir, name), append(head, all.Encode()...), 0o600)
	}
	if err == nil {
		err = m.prune(name, since)
	}
	if err != nil {
		return fmt.Errorf("write a baseline: %w", err)
	}
	return nil
}

// Synced returns the index of the directory at a snapshot, the index when it was last
// synced after that, and the time when it was last synced at all, in whatever boot. What is
// not known is nil, or zero.
func (m Baselines) Synced(snapshot string, l Limits) (at, later Index, when time.Time) {
	saved, err := m.newestFirst("")
	if err != nil || len(saved) == 0 {
		return nil, nil, time.Time{}
	}
	if saved[0].Name() != snapshot {
		later = m.readAnyBoot(saved[0].Name(), l)
	}
	return m.readAnyBoot(snapshot, l), later, saved[0].ModTime()
}

// readAnyBoot is Read of a baseline of any boot.
func (m Baselines) readAnyBoot(name string, l Limits) Index {
	raw, err := os.ReadFile(filepath.Join(m.Dir, name))
	if err != nil {
		return nil
	}
	head, raw, _ := bytes.Cut(raw, []byte("\n"))
	now, err := m.identity()
	if err != nil {
		return nil
	}
	_, is, _ := bytes.Cut(bytes.TrimSpace(now), []byte(" "))
	if _, was, _ := bytes.Cut(head, []byte(" ")); !bytes.Equal(was, is) {
		return nil // it was of another directory
	}
	all, err := DecodeIndex(raw, l)
	if err != nil {
		return nil
	}
	return all
}

// prune removes all baselines but the last, the one that it was compared with, and the
// newest of the others up to maxBaselines.
func (m Baselines) prune(last, since string) error {
	saved, err := m.newestFirst(last)
	if err != nil {
		return err
	}
	slices.SortStableFunc(saved, func(a, b fs.FileInfo) int {
		switch since {
		case a.Name():
			return -1
		case b.Name():
			return 1
		}
		return 0
	})
	for _, old := range saved[min(maxBaselines-1, len(saved)):] {
		if err := os.Remove(filepath.Join(m.Dir, old.Name())); err != nil {
			return err
		}
	}
	partial, err := filepath.Glob(filepath.Join(m.Dir, ".*")) // of writes that a crash has cut off
	for _, name := range partial {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// orderTimes makes all baselines older than one that is written now, even if the clock was
// set back since: their modification times tell which is the last.
func (m Baselines) orderTimes(now time.Time) error {
	saved, err := m.newestFirst("")
	if err != nil {
		return err
	}
	const tick = 20 * time.Millisecond // file systems lag behind the clock by less
	for _, baseline := range saved {
		now = now.Add(-tick)
		if baseline.ModTime().Before(now) {
			return nil
		}
		f, err := os.Open(filepath.Join(m.Dir, baseline.Name()))
		if err != nil {
			return err
		}
		if err := errors.Join(os.Chtimes(f.Name(), now, now), f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// newestFirst lists all baselines but one, without the files of writes that were cut off.
func (m Baselines) newestFirst(but string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return nil, err
	}
	var saved []fs.FileInfo
	for _, e := range entries {
		if i, err := e.Info(); err == nil && e.Name() != but && !strings.HasPrefix(e.Name(), ".") {
			saved = append(saved, i)
		}
	}
	slices.SortFunc(saved, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	return saved, nil
}

// identity says which directory a baseline describes, and in which boot.
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
