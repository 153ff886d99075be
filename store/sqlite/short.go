package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// refuseShort returns ErrCorrupt if the file of a database ends before it says itself. SQLite
// reads zeros for what is missing of a page. A log with frames may have the rest: pages are
// written behind the end while it is moved.
func refuseShort(database string) error {
	log, err := os.Stat(database + "-wal")
	if err == nil && log.Size() >= logHeader+frameHeader {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	missing, err := missingBytes(database)
	if err == nil && missing > 0 {
		err = fmt.Errorf("%w (its file is %d bytes short)", ErrCorrupt, missing)
	}
	return err
}

// missingBytes is by how much the file of a database is shorter than it says itself.
func missingBytes(path string) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	at, err := f.Stat()
	if err != nil {
		return 0, err
	}
	page, err := pageSizeOf(path)
	if err != nil {
		return 0, err
	}
	var header [100]byte
	if n, err := f.ReadAt(header[:], 0); n < len(header) {
		if errors.Is(err, io.EOF) {
			return 0, nil // no database yet
		}
		return 0, err
	}
	// The number of pages counts only if the header was written by a program that maintains
	// it.
	pages := binary.BigEndian.Uint32(header[28:])
	if string(header[24:28]) != string(header[92:96]) || !strings.HasPrefix(string(header[:]), "SQLite format 3\x00") {
		return 0, nil
	}
	return max(int64(pages)*page-at.Size(), 0), nil
}
