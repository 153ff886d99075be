package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// holes are what a log that was mended lacks.
type holes struct {
	// pages are as they were before, or have a flipped bit: what was written to them last is
	// lost.
	pages map[uint32]bool
	// unknown says that pages were lost whose numbers are unknown.
	unknown bool
}

// mendTo writes a log of the frames that are what was written, those behind a broken one, too:
// each goes on from the checksum that the frame before it has, whatever became of that
// frame's page. A single flipped bit is flipped back where the checksum says which it was. A
// broken frame is left out, which is no loss if its page was written again behind it.
func (r *logReader) mendTo(w io.Writer) (lost holes, err error) {
	lost.pages = make(map[uint32]bool)
	out := bufio.NewWriter(w)
	sum, err := r.writeHeader(out)
	if err != nil {
		return lost, err
	}
	// Of the frames since the last commit: the pages, and whether the last frame of each is
	// what was written. Without a commit behind them they were never there.
	since := make(map[uint32]bool)
	foreign, unknown := false, false
	for {
		f, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return lost, err
		}
		switch {
		case !f.present:
			foreign = true
			continue
		case !f.follows && (!f.flipped || !f.plausible()):
			since[f.number()] = false
		default:
			since[f.number()] = f.follows // else all of the page but a bit, which is more than the one before has
			copy(f.data[frameSalt:], r.salts[:])
			sum = r.sum(sum, f.data)
			sum.store(f.data[frameSum:])
			if _, err := out.Write(f.data); err != nil {
				return lost, err
			}
		}
		unknown = unknown || foreign
		foreign = false
		if f.commits() == 0 {
			continue
		}
		if !f.follows && !f.flipped { // the commit itself: what is behind the last that can be read is lost
			unknown = true
			continue
		}
		for page, good := range since {
			if good {
				delete(lost.pages, page)
			} else {
				lost.pages[page] = true
			}
		}
		clear(since)
		lost.unknown, unknown = lost.unknown || unknown, false
	}
	lost.unknown = lost.unknown || unknown && len(since) > 0 || !r.told
	return lost, out.Flush()
}

// plausible reports whether a frame can be written that has a flipped bit somewhere.
func (f logFrame) plausible() bool {
	const most = 1 << 30
	return f.number() > 0 && f.number() < most && f.commits() < most
}

// writeHeader writes the header of a log, and returns its checksum.
func (r *logReader) writeHeader(w io.Writer) (checksum, error) {
	var header [logHeader]byte
	magic := uint32(logMagic)
	if r.order == binary.BigEndian {
		magic++
	}
	binary.BigEndian.PutUint32(header[:], magic)
	binary.BigEndian.PutUint32(header[logVersion:], theLogVersion)
	binary.BigEndian.PutUint32(header[logPageSize:], uint32(r.page)) //nolint:gosec // at most 65536
	copy(header[logSalt:], r.salts[:])
	sum := checksum{}.add(r.order, header[:logSum])
	sum.store(header[logSum:])
	_, err := w.Write(header[:])
	return sum, err
}
