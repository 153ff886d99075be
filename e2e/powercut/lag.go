//go:build linux

package powercut

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
)

const pageSize = 4096

// lag is how far a file is ahead of the disk.
type lag struct {
	file *os.File
	// size is the durable one.
	size int64
	// pages holds, by number, what the disk has of every page that was changed:
	// less than a page where the durable file ends, nothing beyond it.
	pages map[int64][]byte
	// shrunk says that the file was shorter in between.
	shrunk bool
}

// touch remembers the pages of [from, to) before they change.
func (l *lag) touch(from, to int64) error {
	for n := from / pageSize; n*pageSize < to; n++ {
		if _, ok := l.pages[n]; ok {
			continue
		}
		old := make([]byte, max(0, min(pageSize, l.size-n*pageSize)))
		if _, err := l.file.ReadAt(old, n*pageSize); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		l.pages[n] = old
	}
	return nil
}

// lose puts the file back to what is durable, except for the pages that keep
// says were written. A file that was truncated goes back as a whole.
func (l *lag) lose(keep func() bool) error {
	at, err := l.file.Stat()
	if err != nil {
		return err
	}
	size := l.size
	if l.shrunk {
		keep = nil
	}
	for _, n := range slices.Sorted(maps.Keys(l.pages)) {
		old := l.pages[n]
		if keep != nil && keep() {
			size = max(size, min(at.Size(), (n+1)*pageSize))
			continue
		}
		// Where the file may end up longer, nothing was written: zeros.
		page := append(slices.Clip(old), make([]byte, pageSize-len(old))...)
		if _, err := l.file.WriteAt(page, n*pageSize); err != nil {
			return err
		}
	}
	return l.file.Truncate(size)
}
