//go:build linux

package layer

import (
	"encoding/binary"
	"hash/crc32"
)

// Summed is bytes as those of an index, with the right sum.
func Summed(body []byte) []byte {
	b := append([]byte(indexMagic), body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// AddWhiteouts is addWhiteouts.
var AddWhiteouts = addWhiteouts
