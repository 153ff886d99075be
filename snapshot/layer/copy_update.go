//go:build linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// updateCopy turns a copy of some entries of a directory into a copy of what it holds now.
// It leaves unchanged entries alone, except for the inodes to copy again. It returns how
// many bytes it has copied, and what Copy returns.
func updateCopy(ctx context.Context, from string, had, now Index, again map[uint64]bool, to string) (copied int64, changed []Entry, err error) {
	dst, err := openRoot(to)
	if err != nil {
		return 0, nil, fmt.Errorf("update a copy: %w", err)
	}
	defer func() { _ = dst.Close() }()
	missing, err := copyUpdater{dst: dst, recopy: again}.removeStale(had, now)
	if err != nil {
		return 0, nil, fmt.Errorf("update a copy: %w", err)
	}
	if changed, err = Copy(ctx, from, missing, to); err != nil {
		return 0, nil, err
	}
	if err := setDirTimes(dst, now); err != nil { // removing names has changed them
		return 0, nil, fmt.Errorf("update a copy: %w", err)
	}
	const each = 4096 // what an inode costs
	for _, e := range missing {
		copied += e.Size + each
	}
	return copied, changed, nil
}

type copyUpdater struct {
	dst    root
	recopy map[uint64]bool
}

// removeStale removes from the copy what has changed, the innermost first, and returns
// what is to be copied.
func (a copyUpdater) removeStale(had, now Index) (missing Index, err error) {
	retained := make([]bool, len(now))
	n := len(now) - 1
	for _, h := range slices.Backward(had) {
		for n >= 0 && compare(now[n].Path, h.Path) > 0 {
			n--
		}
		switch {
		case n < 0 || now[n].Path != h.Path:
			err = a.remove(h)
		case h.Kind == Dir && now[n].Kind == Dir:
			retained[n] = h.unchanged(now[n])
		case h.unchanged(now[n]) && !a.recopy[h.Inode]:
			retained[n] = true
		default:
			err = a.remove(h)
		}
		if err != nil {
			return nil, err
		}
	}
	for i, e := range now {
		if !retained[i] {
			missing = append(missing, e)
		}
	}
	return missing, nil
}

// remove removes an entry of the copy. One that changed while it was read may be missing.
func (a copyUpdater) remove(e Entry) error {
	if e.Path == "." {
		return nil
	}
	flags := 0
	if e.Kind == Dir {
		flags = unix.AT_REMOVEDIR
	}
	err := a.dst.withParent(e.Path, func(dir int, name string) error { return unix.Unlinkat(dir, name, flags) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: beneath.Quoted(e.Path), Err: err}
	}
	return nil
}
