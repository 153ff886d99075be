package sqlite

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"

	lib "modernc.org/sqlite/lib"
)

// The sizes of what begins a log and each of its frames, and where in them is what is
// asked for here. The salts name the log's present content: frames with others were left by
// an earlier one.
const (
	logHeader   = 32
	logVersion  = 4
	logPageSize = 8
	logSalt     = 16
	logSum      = 24
	frameHeader = 24
	frameCommit = 4
	frameSalt   = 8
	frameSum    = 16
)

// A log begins with one of two magic numbers, which differ in the order of the bytes that
// are summed, and has had one version since there are logs.
const (
	logMagic      = 0x377f0682
	theLogVersion = 3007000
)

// checksum is SQLite's over a log. That of a frame goes on from that of the frame before.
type checksum [2]uint32

// add continues the checksum with b.
func (s checksum) add(order binary.ByteOrder, b []byte) checksum {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += order.Uint32(b) + s[1]
		s[1] += order.Uint32(b[4:]) + s[0]
	}
	return s
}

// storedSum is a checksum as it is stored.
func storedSum(b []byte) checksum {
	return checksum{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

func (s checksum) store(b []byte) {
	binary.BigEndian.PutUint32(b, s[0])
	binary.BigEndian.PutUint32(b[4:], s[1])
}

// aBitApart reports whether two texts of the same length differ in exactly one bit.
func aBitApart(a, b []byte) bool {
	n := 0
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n == 1
}

// flipped is a bit of a text, as the text and the place of the word it is in.
type flipped struct {
	at  int
	bit uint32
}

// flips finds the bits of b of which one must have flipped if its checksum is got and should be
// want, up to two. By chance there is one for every 2^47th text. The higher bits of words
// count so little that there may be several.
func flips(order binary.ByteOrder, b []byte, got, want checksum) (found []flipped) {
	off := checksum{want[0] - got[0], want[1] - got[1]}
	// What one more in the first and in the second word of a pair adds to the checksum.
	adds := [2]checksum{{1, 1}, {0, 1}}
	for pair := len(b) - 8; pair >= 0; pair -= 8 {
		for i, a := range adds {
			at := pair + 4*i
			word := order.Uint32(b[at:])
			for bit := uint32(1); bit > 0; bit <<= 1 {
				d := (word ^ bit) - word
				if d*a[0] != off[0] || d*a[1] != off[1] {
					continue
				}
				if found = append(found, flipped{at, bit}); len(found) == 2 {
					return found
				}
			}
			adds[i] = checksum{a[0] + a[1], a[0] + 2*a[1]}
		}
	}
	return found
}

// back flips the bit.
func (f flipped) back(order binary.ByteOrder, b []byte) {
	order.PutUint32(b[f.at:], order.Uint32(b[f.at:])^f.bit)
}

// logReader reads the frames of a write-ahead log, the broken ones too.
type logReader struct {
	log   io.ReaderAt
	size  int64
	order binary.ByteOrder
	page  int64
	salts [8]byte
	// told says that the header is known, and intact that SQLite takes it as it is: in that of
	// another one bit has flipped.
	told, intact bool

	at     int64      // of the next frame
	follow []checksum // that the next frame may go on from; the likeliest first
	inside bool       // the frame before is of the present content, and its checksum, too
}

// logFrame is a frame as it is in a log.
type logFrame struct {
	at   int64
	data []byte // the header and the page; flipped back, if one bit had flipped
	// follows says that it goes on from the frame before, as its checksum shows.
	follows bool
	// present says that it is of the present content of the log.
	present bool
	// flipped says that one bit of it has flipped; flipped back, if it is mended.
	flipped, mended bool
	// accepted says that SQLite reads it, if it has read all before.
	accepted bool
}

// number is the page that a frame has.
func (f logFrame) number() uint32 { return binary.BigEndian.Uint32(f.data) }

// commits returns the size of the database in pages after the transaction that ends with
// a frame, 0 if none does. A frame with the log's salts is believed if its checksum fits,
// or if the size is in the same sector as the salts: a disk writes a sector whole.
func (f logFrame) commits() uint32 {
	if !f.present || !f.follows && !f.flipped && !f.inOneSector(frameSum) {
		return 0
	}
	return binary.BigEndian.Uint32(f.data[frameCommit:])
}

// summed reports whether the checksum of a frame is of the content that the frame names. Where
// a power cut has torn a frame between the two, the checksum is that of an older frame, and
// what goes on from it was never behind this one.
func (f logFrame) summed() bool {
	return f.present && (f.follows || f.flipped || f.inOneSector(frameHeader))
}

// inOneSector reports whether the first bytes of a frame are written all or none.
func (f logFrame) inOneSector(n int64) bool {
	const sector = 512
	return f.at/sector == (f.at+n-1)/sector
}

// readLog reads the header of a log. The size of pages is that of its database, for a
// header that cannot be told.
func readLog(log io.ReaderAt, size, page int64) (*logReader, error) {
	r := &logReader{log: log, size: size, order: binary.LittleEndian, page: page, at: logHeader, inside: true}
	if size < logHeader {
		return r, nil
	}
	header := make([]byte, logHeader)
	if _, err := log.ReadAt(header, 0); err != nil {
		return nil, err
	}
	for _, r.order = range []binary.ByteOrder{binary.BigEndian, binary.LittleEndian} {
		if r.intact = r.takes(header); r.intact {
			return r, nil
		}
		was := append([]byte(nil), header...)
		got := checksum{}.add(r.order, was[:logSum])
		for _, f := range flips(r.order, was[:logSum], got, storedSum(was[logSum:])) {
			f.back(r.order, was)
			if r.takesFlipped(was) {
				return r, nil
			}
			f.back(r.order, was)
		}
		if got.store(was[logSum:]); aBitApart(header, was) && r.takesFlipped(was) {
			return r, nil
		}
	}
	r.follow = []checksum{storedSum(header[logSum:]), checksum{}.add(r.order, header[:logSum])}
	return r, r.guessSalts()
}

// takes reports whether SQLite would read a log that has the header, and takes from it
// what the frames are read with.
func (r *logReader) takes(header []byte) bool {
	sum, magic := checksum{}.add(r.order, header[:logSum]), uint32(logMagic)
	if r.order == binary.BigEndian {
		magic++
	}
	page := int64(binary.BigEndian.Uint32(header[logPageSize:]))
	if sum != storedSum(header[logSum:]) || binary.BigEndian.Uint32(header) != magic ||
		binary.BigEndian.Uint32(header[logVersion:]) != theLogVersion || !pageSize(page) {
		return false
	}
	r.told, r.page, r.follow = true, page, []checksum{sum}
	copy(r.salts[:], header[logSalt:])
	return true
}

// takesFlipped is takes for a header of which a bit was flipped back. It may have been another
// one, which the first frame tells: it has the same salts.
func (r *logReader) takesFlipped(header []byte) bool {
	was := *r
	if salts := make([]byte, len(r.salts)); r.takes(header) {
		if _, err := r.log.ReadAt(salts, logHeader+frameSalt); err == nil && [8]byte(salts) == r.salts {
			return true
		}
	}
	*r = was
	return false
}

func pageSize(n int64) bool {
	return n >= 512 && n <= lib.SQLITE_MAX_PAGE_SIZE && n&(n-1) == 0
}

// guessSalts takes the salts of the first two frames of which one goes on from the other, for
// a log whose header cannot be told.
func (r *logReader) guessSalts() error {
	before := *r
	for {
		var last [8]byte
		copy(last[:], r.salts[:])
		f, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		salts := [8]byte(f.data[frameSalt:frameSum])
		if f.follows && f.at > logHeader && salts == last {
			before.salts = salts
			break
		}
		r.salts = salts
	}
	*r = before
	return nil
}

// next reads a frame, and returns io.EOF behind the last whole one.
func (r *logReader) next() (logFrame, error) {
	if r.at+frameHeader+r.page > r.size {
		return logFrame{}, io.EOF
	}
	f := logFrame{at: r.at, data: make([]byte, frameHeader+r.page)}
	if _, err := r.log.ReadAt(f.data, f.at); err != nil {
		return f, err
	}
	r.at += int64(len(f.data))
	salts := f.data[frameSalt:frameSum]
	same := [8]byte(salts) == r.salts
	f.present = same
	for _, before := range r.follow {
		if f.follows = r.sum(before, f.data) == storedSum(f.data[frameSum:]); f.follows {
			break
		}
	}
	switch {
	case f.follows && !same && r.inside:
		f.present = true
		if f.flipped = aBitApart(salts, r.salts[:]); f.flipped {
			copy(salts, r.salts[:])
			f.mended = true
		}
	case !f.follows && same:
		f.flipped, f.mended = r.mend(f.data)
		f.follows = f.mended
	}
	f.accepted = r.intact && f.follows && same && !f.flipped
	computed := r.sum(r.follow[0], f.data)
	if r.follow = []checksum{storedSum(f.data[frameSum:])}; !f.follows {
		r.follow = append(r.follow, computed)
	}
	r.inside = f.summed()
	return f, nil
}

// sum is the checksum of a frame that goes on from the one before.
func (r *logReader) sum(before checksum, frame []byte) checksum {
	return before.add(r.order, frame[:frameSalt]).add(r.order, frame[frameHeader:])
}

// mend reports whether one bit of a frame has flipped, and flips it back if it is certain
// which.
func (r *logReader) mend(frame []byte) (one, certain bool) {
	want := storedSum(frame[frameSum:])
	summed := append(append(make([]byte, 0, len(frame)), frame[:frameSalt]...), frame[frameHeader:]...)
	for _, before := range r.follow {
		got := before.add(r.order, summed)
		found := flips(r.order, summed, got, want)
		inSum := bits.OnesCount32(got[0]^want[0])+bits.OnesCount32(got[1]^want[1]) == 1
		switch {
		case len(found) == 1 && !inSum:
			found[0].back(r.order, summed)
			copy(frame, summed[:frameSalt])
			copy(frame[frameHeader:], summed[frameSalt:])
			return true, true
		case len(found) == 0 && inSum:
			got.store(frame[frameSum:])
			return true, true
		case len(found) > 0:
			return true, false
		}
	}
	return false, false
}
