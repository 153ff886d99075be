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

// updateCopy makes a directory that holds a copy of some entries one that holds a copy
// of others, of the same directory as it is now. What is the same is left as it
// is, except for the inodes to take again. It returns how many bytes it had to
// copy, and what Copy does.
func updateCopy(ctx context.Context, from string, had, now Index, again map[uint64]bool, to string) (copied int64, torn []Entry, err error) {
	dst, err := openRoot(to)
	if err != nil {
		return 0, nil, fmt.Errorf("amend a copy: %w", err)
	}
	defer func() { _ = dst.Close() }()
	missing, err := copyUpdater{dst: dst, recopy: again}.removeStale(had, now)
	if err != nil {
		return 0, nil, fmt.Errorf("amend a copy: %w", err)
	}
	if torn, err = Copy(ctx, from, missing, to); err != nil {
		return 0, nil, err
	}
	if err := setDirTimes(dst, now); err != nil { // what went out of them has changed their times
		return 0, nil, fmt.Errorf("amend a copy: %w", err)
	}
	const each = 4096 // what a file costs beside what is in it
	for _, e := range missing {
		copied += e.Size + each
	}
	return copied, torn, nil
}

type copyUpdater struct {
	dst    root
	recopy map[uint64]bool
}

// removeStale removes what is not wanted any more, the innermost first, and returns what
// there is to copy.
func (a copyUpdater) removeStale(had, now Index) (missing Index, err error) {
	kept := make([]bool, len(now))
	n := len(now) - 1
	for _, h := range slices.Backward(had) {
		for n >= 0 && compare(now[n].Path, h.Path) > 0 {
			n--
		}
		switch {
		case n < 0 || now[n].Path != h.Path:
			err = a.remove(h)
		case h.Kind == Dir && now[n].Kind == Dir:
			kept[n] = h.unchanged(now[n])
		case h.unchanged(now[n]) && !a.recopy[h.Inode]:
			kept[n] = true
		default:
			err = a.remove(h)
		}
		if err != nil {
			return nil, err
		}
	}
	for i, e := range now {
		if !kept[i] {
			missing = append(missing, e)
		}
	}
	return missing, nil
}

// remove takes away what a copy has put. What was torn may not be there.
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
