//go:build linux

package powercut

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// lag is how far a file is ahead of the disk.
type lag struct {
	file *os.File
	// size is the durable one.
	size int64
	// pages holds, by number, what the disk has of every page that was changed:
	// less than a page where the durable file ends, nothing beyond it.
	pages map[int64][]byte
	// dropped holds the same of pages that a failed sync has dropped: they are
	// clean, everybody reads them, and no later sync writes them unless they are
	// changed again.
	dropped map[int64][]byte
	// shrunk says that the file was shorter in between.
	shrunk bool
}

// touch remembers the pages of [from, to) before they change.
func (l *lag) touch(from, to int64) error {
	for n := from / PageSize; n*PageSize < to; n++ {
		if _, ok := l.pages[n]; ok {
			continue
		}
		if old, ok := l.dropped[n]; ok {
			delete(l.dropped, n)
			l.pages[n] = old
			continue
		}
		old := make([]byte, max(0, min(PageSize, l.size-n*PageSize)))
		if _, err := l.file.ReadAt(old, n*PageSize); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		l.pages[n] = old
	}
	return nil
}

// touchData is touch for those pages of [from, to) in which there is something.
func (l *lag) touchData(from, to int64) error {
	for from < to {
		start, err := unix.Seek(int(l.file.Fd()), from, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && start >= to {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(l.file.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := l.touch(start, min(end, to)); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// shorten remembers what a truncation to size takes away, dropped pages included:
// once it is durable there is nothing left of them.
func (l *lag) shorten(size int64) error {
	l.shrunk = l.shrunk || size < l.size
	for n, old := range l.dropped {
		if n*PageSize >= size {
			delete(l.dropped, n)
			l.pages[n] = old
		}
	}
	return l.touch(size, l.size)
}

// drop is a sync that failed: what it should have written is not on the disk, and
// nothing will write it.
func (l *lag) drop() {
	maps.Copy(l.dropped, l.pages)
	clear(l.pages)
}

// settle records a sync that succeeded. It reports whether all of the file is durable.
func (l *lag) settle() (bool, error) {
	at, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	clear(l.pages)
	l.size, l.shrunk = at.Size(), false
	return len(l.dropped) == 0, nil
}

// lose puts the file back to what is durable, except for what keep says was
// written. A file that was truncated goes back as a whole.
func (l *lag) lose(below func(string) string, keep Keep) error {
	at, err := l.file.Stat()
	if err != nil {
		return err
	}
	size := l.size
	numbers := slices.Sorted(maps.Keys(l.pages))
	for n, old := range l.dropped {
		page := append(slices.Clip(old), make([]byte, PageSize-len(old))...)
		if _, err := l.file.WriteAt(page, n*PageSize); err != nil {
			return err
		}
	}
	for i, n := range numbers {
		kept := 0
		if !l.shrunk {
			kept = min(max(keep(Unsynced{Path: below(l.file.Name()), Page: n, Last: i == len(numbers)-1}), 0), PageSize)
		}
		if kept > 0 {
			size = max(size, min(at.Size(), n*PageSize+int64(kept)))
		}
		// Where the file may end up longer, nothing was written: zeros.
		page := append(slices.Clip(l.pages[n]), make([]byte, PageSize-len(l.pages[n]))...)
		if _, err := l.file.WriteAt(page[kept:], n*PageSize+int64(kept)); err != nil {
			return err
		}
	}
	return l.file.Truncate(size)
}
