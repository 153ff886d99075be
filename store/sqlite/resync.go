package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// After an fsync that failed, the kernel marks the pages it could not write as clean: they
// are still read from the page cache, by the next process, too, and no later fsync writes
// them. After a power cut they are missing, and a write-ahead log ends there, whatever was
// committed behind them. So what an earlier process left is written and synced once more
// before anything of it is trusted.

// resync makes durable what can be read of a database and its log. This process must not
// have them open.
func resync(ctx context.Context, database string) error {
	if err := waitForReaders(ctx, database+"-shm"); err != nil {
		return err
	}
	if err := forgetTorn(database); err != nil {
		return err
	}
	// The log first: the database may hold what the disk does not have of the log.
	if err := rewriteInPlace(database+"-wal", logEnd); err != nil {
		return err
	}
	// What is in the database beside its log was synced when the log was emptied,
	// but for the page that says it is one.
	return rewriteInPlace(database, func(io.ReaderAt, int64) (int64, error) { return lib.SQLITE_MAX_PAGE_SIZE, nil })
}

// rewriteInPlace writes the first bytes of a file, as many as end says, over themselves.
func rewriteInPlace(path string, end func(io.ReaderAt, int64) (int64, error)) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	at, err := f.Stat()
	if err != nil {
		return err
	}
	n, err := end(f, at.Size())
	if err != nil {
		return err
	}
	n = min(n, at.Size())
	buf := make([]byte, min(n, 1<<20))
	for off := int64(0); off < n; off += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), n-off)]
		if _, err := f.ReadAt(part, off); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if _, err := f.WriteAt(part, off); err != nil {
			return fmt.Errorf("write %s once more: %w", path, err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// logEnd is where the frames of a log's present content end.
func logEnd(log io.ReaderAt, size int64) (int64, error) {
	var header [logHeader]byte
	if size < logHeader {
		return size, nil
	}
	if _, err := log.ReadAt(header[:], 0); err != nil {
		return 0, err
	}
	page := int64(binary.BigEndian.Uint32(header[logPageSize:]))
	if page < 512 || page > lib.SQLITE_MAX_PAGE_SIZE {
		return size, nil // no log that we know
	}
	end := int64(logHeader)
	for ; end+frameHeader+page <= size; end += frameHeader + page {
		var frame [frameHeader]byte
		if _, err := log.ReadAt(frame[:], end); err != nil {
			return 0, err
		}
		if !bytes.Equal(frame[frameSalt:frameSum], header[logSalt:logSum]) {
			break
		}
	}
	return end, nil
}

// sharedLock is the byte of a log's index that every process which has it open holds a lock
// on.
const sharedLock = 128

// waitForReaders waits until no other process has the log's index open. The index says how
// much of the log is in the database, which only the process that wrote it knows to be
// true: the first process that opens the database makes a new index.
func waitForReaders(ctx context.Context, index string) (err error) {
	f, err := os.OpenFile(index, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for end := time.Now().Add(readerTimeout); ; {
		held := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: sharedLock, Len: 1}
		if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &held); err != nil {
			return fmt.Errorf("look who uses %s: %w", index, err)
		}
		if held.Type == syscall.F_UNLCK {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("process %d has the database open, and must close it before a server can start: %w", held.Pid, ErrLocked)
		}
		time.Sleep(lockRetry) //nolint:forbidigo // bounded above, before anything runs
	}
}

// readerTimeout is how long a server waits for another process that reads the database.
const readerTimeout = 5 * time.Second

// truncateLog moves all of the log into the database and sees that it is gone from the
// log. A full disk may have no space for that; the log, which is durable by then,
// stays.
func (c *conn) truncateLog(ctx context.Context, database string) error {
	left, err := c.checkpoint(ctx, "TRUNCATE")
	if code(err) == lib.SQLITE_FULL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty the log: %w", err)
	}
	at, err := os.Stat(database + "-wal")
	if errors.Is(err, fs.ErrNotExist) && left == 0 {
		return nil // a database that has no log yet
	}
	if err == nil && (left != 0 || at.Size() != 0) {
		err = fmt.Errorf("%d pages and %d bytes are left in it", left, at.Size())
	}
	if err != nil {
		return fmt.Errorf("empty the log: %w", err)
	}
	return nil
}

// checkpoint moves what it can of the log into the database, and returns how many pages
// it could not move.
func (c *conn) checkpoint(ctx context.Context, mode string) (left int64, err error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return 0, errors.New("driver cannot query")
	}
	rows, err := q.QueryContext(ctx, "PRAGMA wal_checkpoint("+mode+")", nil)
	if err != nil {
		return 0, err
	}
	var v [3]driver.Value // whether a reader or writer was in the way, pages in the log, and of these in the database
	if err := errors.Join(rows.Next(v[:]), rows.Close()); err != nil {
		return 0, err
	}
	busy, err1 := integer(v[0])
	pages, err2 := integer(v[1])
	moved, err3 := integer(v[2])
	return max(pages-moved, busy), errors.Join(err1, err2, err3)
}

// pagesWritten counts the pages that were written since it was last asked.
func (c *conn) pagesWritten() (int, error) {
	s, ok := c.Conn.(sqlite.DBStatus)
	if !ok {
		return 0, errors.New("driver cannot count pages")
	}
	n, _, err := s.Status(sqlite.DBStatusCacheWrite, true)
	return n, err
}
