package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// SQLite reads a log up to the first frame that is not what was written, and takes what is
// behind it for a transaction that a power cut has torn. A transaction is synced before
// the next is begun, so that only the last of a log can be torn. If there is more behind
// the frame, it was synced once, and what was committed with it and after it was acknowledged.

// refuseHole returns ErrCorrupt if the log of a database has lost a commit that was
// synced. It changes nothing.
func refuseHole(database string) error {
	r, log, err := openLog(database)
	if err != nil || log == nil {
		return err
	}
	defer func() { _ = log.Close() }()
	at, err := r.hole()
	if err == nil && at >= 0 {
		err = fmt.Errorf("%w (its write-ahead log is not what was written, from byte %d on, and commits are behind it)", ErrCorrupt, at)
	}
	return err
}

// forgetTorn takes from the log of a database what is behind its last commit: a transaction
// that a power cut has torn. SQLite does not read that, and begins the next transaction
// over it. If the log cannot be emptied first, since the disk is full, the rest of it would
// be taken for commits behind a hole should a power cut tear that one, too. The log must
// not be open.
func forgetTorn(database string) (err error) {
	r, log, err := openLog(database)
	if err != nil || log == nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	var torn []int64
	for read := r.intact; ; {
		f, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch read = read && f.accepted; {
		case read && f.commits() > 0:
			torn = nil
		case f.present:
			torn = append(torn, f.at)
		}
	}
	if len(torn) == 0 || !r.intact {
		return nil
	}
	out, err := os.OpenFile(log.Name(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, at := range torn {
		if _, err := out.WriteAt(make([]byte, frameHeader), at); err != nil {
			return errors.Join(fmt.Errorf("forget a torn transaction: %w", err), out.Close())
		}
	}
	return errors.Join(out.Sync(), out.Close())
}

// openLog opens the log of a database, nil if there is none.
func openLog(database string) (*logReader, *os.File, error) {
	log, err := os.Open(database + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	at, err := log.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	page, err := pageSizeOf(database)
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	r, err := readLog(log, at.Size(), page)
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	return r, log, nil
}

// pageSizeOf is the size of a database's pages as its file says, or the one that we make
// them in.
func pageSizeOf(database string) (int64, error) {
	const usual = 4096
	f, err := os.Open(database)
	if errors.Is(err, fs.ErrNotExist) {
		return usual, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var said [2]byte
	if _, err := f.ReadAt(said[:], 16); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	n := int64(binary.BigEndian.Uint16(said[:]))
	if n == 1 { // as it says what two bytes cannot
		n = 1 << 16
	}
	if !pageSize(n) {
		n = usual
	}
	return n, nil
}

// hole is where a log begins not to be what was written, if a commit that was synced
// is lost with it, else -1. It reads the frames, all of them.
func (r *logReader) hole() (int64, error) {
	if !r.intact {
		// The header is synced before the first frame is written.
		if r.size < logHeader+frameHeader+512 {
			return -1, nil
		}
		return 0, nil
	}
	at := int64(-1) // the first frame that SQLite does not read
	// ends, ended and whole are of what is behind it: how many transactions end there,
	// whether the frame before ends one with a checksum of its own, and whether all frames
	// so far are there, flipped bits aside.
	var ends int
	var ended bool
	whole := true
	for {
		f, err := r.next()
		if errors.Is(err, io.EOF) {
			return -1, nil
		}
		if err != nil {
			return 0, err
		}
		if f.accepted && at < 0 {
			continue
		}
		if at < 0 {
			at = f.at
		}
		if ended && f.follows {
			return at, nil // of a transaction that was begun when this one was synced
		}
		whole = whole && f.present && (f.follows || f.flipped)
		commits := f.commits() > 0
		if ended = commits && f.summed(); !commits {
			continue
		}
		// Two have ended, or one of which nothing is torn: a bit of it has flipped.
		if ends++; ends > 1 || whole {
			return at, nil
		}
	}
}
