//go:build linux

package layertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Malformed are archives that no writer of tars would write. Those that lead
// elsewhere lead to a directory that is not theirs, or beside where they are
// unpacked.
func Malformed(elsewhere string) map[string][]byte {
	root := block("./", '5', 0)
	broken := block("a", '0', 0)
	broken[0] = 'b'
	end := make([]byte, 2*blockSize)
	return map[string][]byte{
		"a name with a zero":         slices.Concat(root, pax('x', "path", "a\x00/../../x"), block("a", '0', 0), end),
		"a link with a zero":         slices.Concat(root, pax('x', "linkpath", "a\x00b"), block("a", '2', 0), end),
		"a slash after a link":       slices.Concat(root, pax('x', "linkpath", elsewhere), block("a", '2', 0), block("a/", '0', 0), end),
		"a link to nothing":          slices.Concat(root, block("a", '2', 0), end),
		"a time that is no number":   slices.Concat(root, pax('x', "mtime", "NaN"), block("a", '0', 0), end),
		"a time without end":         slices.Concat(root, pax('x', "mtime", "Inf"), block("a", '0', 0), end),
		"a time before the calendar": slices.Concat(root, pax('x', "mtime", "-62198755200"), block("a", '0', 0), end),
		"a time of 62 bits":          slices.Concat(root, pax('x', "mtime", "4611686018427387904"), block("a", '0', 0), end),
		"a checksum that is none":    slices.Concat(root, broken, end),
		"a size of 63 bits":          slices.Concat(root, block("a", '0', math.MaxInt64), end),
		"a size below nothing":       slices.Concat(root, block("a", '0', -1), end),
		"a name of 4 GiB":            slices.Concat(root, block("x", 'x', 4<<30), bytes.Repeat([]byte("9"), 2<<20)),
		"a long name of 4 GiB":       slices.Concat(root, block("././@LongLink", 'L', 4<<30), bytes.Repeat([]byte("../"), 1<<20)),
		"a long name that leads up":  slices.Concat(root, block("././@LongLink", 'L', 4), pad("../x"), block("a", '0', 0), end),
		"a record that leads up":     slices.Concat(root, pax('x', "path", "../x"), block("a", '0', 0), end),
		"records that are none":      slices.Concat(root, block("x", 'x', 9), pad("99999 a=b"), block("a", '0', 0), end),
		"a sparse file of 8 EiB":     slices.Concat(root, sparse("a", math.MaxInt64), end),
		"another one of 8 EiB": slices.Concat(root, pax('x', "GNU.sparse.major", "0", "GNU.sparse.minor", "1", "GNU.sparse.numblocks", "1", "GNU.sparse.map", "0,0",
			"GNU.sparse.size", "9223372036854775807"), block("a", '0', 0), end),
		"half an entry": slices.Concat(root, block("a", '0', 100)),
		"half a header": root[:100],
		"no tar":        []byte(strings.Repeat("no tar", 1000)),
	}
}

const blockSize = 512

// block is the header of an entry.
func block(name string, kind byte, size int64) []byte {
	b := make([]byte, blockSize)
	copy(b, name)
	copy(b[100:], "0000755\x000000000\x000000000\x00")
	number(b[124:136], size)
	copy(b[136:], "00000000000\x00")
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	return sum(b)
}

// number writes one that may have more digits than there is room for.
func number(field []byte, n int64) {
	if n >= 0 && n < 1<<33 {
		copy(field, fmt.Sprintf("%011o\x00", n))
		return
	}
	for i := range field {
		field[i] = byte(n >> 63) // of two's complement
	}
	binary.BigEndian.PutUint64(field[len(field)-8:], uint64(n))
	field[0] |= 0x80
}

// sum completes a header.
func sum(b []byte) []byte {
	copy(b[148:156], "        ")
	total := 0
	for _, c := range b {
		total += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", total))
	return b
}

// pad fills the last block of an entry.
func pad(text string) []byte {
	return append([]byte(text), make([]byte, (blockSize-len(text)%blockSize)%blockSize)...)
}

// pax is a header with records, each a key and a value, for the next entry or for
// all of them.
func pax(kind byte, records ...string) []byte {
	var text strings.Builder
	for i := 0; i+1 < len(records); i += 2 {
		rest := " " + records[i] + "=" + records[i+1] + "\n"
		n := len(rest)
		for len(fmt.Sprint(n))+len(rest) != n {
			n = len(fmt.Sprint(n)) + len(rest)
		}
		text.WriteString(fmt.Sprint(n) + rest)
	}
	return append(block("records", kind, int64(text.Len())), pad(text.String())...)
}

// sparse is a file that is one hole, as older versions of tar wrote them.
func sparse(name string, size int64) []byte {
	b := block(name, 'S', 0)
	copy(b[257:], "ustar  \x00")
	number(b[386:398], size)
	number(b[398:410], 0)
	number(b[483:495], size)
	return sum(b)
}

// Global is an archive whose first header gives all that follow another name.
func Global() []byte {
	return slices.Concat(pax('g', "path", "../x", "mtime", "9"), block("a", '0', 0), make([]byte, 2*blockSize))
}

// Attributes is an archive of a file that so many attributes are attached to.
func Attributes(n, size int) []byte {
	var records []string
	for i := range n {
		records = append(records, fmt.Sprint("SCHILY.xattr.user.", i), strings.Repeat("x", size))
	}
	return slices.Concat(block("./", '5', 0), pax('x', records...), block("a", '0', 0), make([]byte, 2*blockSize))
}
