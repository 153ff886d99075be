//go:build linux

package layer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"path/filepath"
	"strings"
)

// An encoded index is a magic, the entries one after the other, and a checksum. A path is
// encoded as the length of the prefix that it shares with the one before, and the rest.

const indexMagic = "dormouse index 1\n"

var errIndex = errors.New("these bytes are no index")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode encodes the index.
func (all Index) Encode() []byte {
	const each = 40 // or so
	b := make([]byte, 0, len(indexMagic)+each*len(all))
	b = append(b, indexMagic...)
	b = binary.AppendUvarint(b, uint64(len(all)))
	before := ""
	for _, e := range all {
		shared := sharedPrefix(before, e.Path)
		b = binary.AppendUvarint(b, uint64(shared))             //nolint:gosec // a length
		b = binary.AppendUvarint(b, uint64(len(e.Path)-shared)) //nolint:gosec // a length
		b = append(b, e.Path[shared:]...)
		b = append(b, byte(e.Kind), flag(e.Opaque))
		for _, n := range []uint64{uint64(e.Mode), uint64(e.UID), uint64(e.GID), e.Inode, uint64(e.Links)} {
			b = binary.AppendUvarint(b, n)
		}
		for _, n := range []int64{e.Size, e.Modified.Sec, e.Modified.Nsec, e.Changed.Sec, e.Changed.Nsec} {
			b = binary.AppendVarint(b, n)
		}
		before = e.Path
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func sharedPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// DecodeIndex decodes what Encode has written, and refuses anything else.
func DecodeIndex(raw []byte, l Limits) (Index, error) {
	const sum = 4
	body, ok := bytes.CutPrefix(raw, []byte(indexMagic))
	if !ok || len(body) < sum || binary.BigEndian.Uint32(raw[len(raw)-sum:]) != crc32.Checksum(raw[:len(raw)-sum], castagnoli) {
		return nil, errIndex
	}
	r := indexReader{rest: body[:len(body)-sum]}
	count := r.uvarint(uint64(max(l.Entries, 0)))
	const least = 14 // bytes of an entry
	if count > uint64(len(body)/least) {
		return nil, fmt.Errorf("%w: it is too short", errIndex)
	}
	all := make(Index, 0, count)
	before := ""
	for range count {
		e := r.entry(before)
		switch {
		case r.bad:
		case len(all) == 0 && (e.Path != "." || e.Kind != Dir):
			return nil, fmt.Errorf("%w: it does not begin with a root", errIndex)
		case len(all) > 0 && (!validPath(e.Path) || compare(before, e.Path) >= 0):
			return nil, fmt.Errorf("%w: %.200q has no place in it", errIndex, e.Path)
		}
		all = append(all, e)
		before = e.Path
	}
	if r.bad || len(r.rest) > 0 || count == 0 {
		return nil, errIndex
	}
	return all, nil
}

// validPath reports whether a scan may find a path.
func validPath(name string) bool {
	return name != "." && len(name) <= maxPath && name == path.Clean(name) && filepath.IsLocal(name) &&
		!strings.ContainsRune(name, 0)
}

type indexReader struct {
	rest []byte
	bad  bool
}

func (r *indexReader) entry(before string) Entry {
	const bits32 = 1<<32 - 1
	shared, more := r.uvarint(uint64(len(before))), r.uvarint(maxPath)
	if r.bad || uint64(len(r.rest)) < more+2 {
		r.bad = true
		return Entry{}
	}
	e := Entry{Path: before[:shared] + string(r.rest[:more]), Kind: Kind(r.rest[more]), Opaque: r.rest[more+1] == 1}
	r.bad = e.Kind < Dir || e.Kind > Whiteout || r.rest[more+1] > 1
	r.rest = r.rest[more+2:]
	e.Mode, e.UID, e.GID = uint32(r.uvarint(permissions)), uint32(r.uvarint(bits32)), uint32(r.uvarint(bits32)) //nolint:gosec // that is the most
	e.Inode, e.Links = r.uvarint(1<<64-1), uint32(r.uvarint(bits32))                                            //nolint:gosec // that is the most
	e.Size = r.varint()
	e.Modified.Sec, e.Modified.Nsec = r.varint(), r.varint()
	e.Changed.Sec, e.Changed.Nsec = r.varint(), r.varint()
	return e
}

func (r *indexReader) uvarint(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if r.bad || size <= 0 || n > most {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *indexReader) varint() int64 {
	n, size := binary.Varint(r.rest)
	if r.bad || size <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}
