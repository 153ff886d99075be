//go:build linux

package volume

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// superblock is what ext4 says of itself.
type superblock struct {
	open   bool  // it was not unmounted since it was last written to
	errors bool  // ext4 has met some
	none   bool  // there is no superblock
	short  bool  // the image is shorter than the file system
	size   int64 // of the file system, 0 if unknown
}

// readSuperblock reads the superblock of an image.
func readSuperblock(image string) (superblock, error) {
	const (
		start, size   = 1024, 1024
		blocksAt      = 0x4
		blockSizeAt   = 0x18
		magicAt       = 0x38
		stateAt       = 0x3a
		incompatAt    = 0x60
		moreBlocksAt  = 0x150
		sumAt         = 0x3fc
		errorState    = 0x2
		needsRecovery = 0x4
		manyBlocks    = 0x80
		most          = 1 << 50
	)
	f, err := os.Open(image)
	if err != nil {
		return superblock{}, err
	}
	defer func() { _ = f.Close() }()
	at, err := f.Stat()
	if err != nil {
		return superblock{}, err
	}
	block := make([]byte, size)
	if _, err := f.ReadAt(block, start); err != nil {
		return superblock{errors: true, none: errors.Is(err, io.EOF)}, nil
	}
	if binary.LittleEndian.Uint16(block[magicAt:]) != unix.EXT4_SUPER_MAGIC {
		return superblock{errors: true, none: true}, nil
	}
	incompat := binary.LittleEndian.Uint32(block[incompatAt:])
	is := superblock{
		open:   incompat&needsRecovery != 0,
		errors: binary.LittleEndian.Uint16(block[stateAt:])&errorState != 0,
	}
	if ^crc32.Checksum(block[:sumAt], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(block[sumAt:]) {
		return is, nil
	}
	blocks := uint64(binary.LittleEndian.Uint32(block[blocksAt:]))
	if incompat&manyBlocks != 0 {
		blocks |= uint64(binary.LittleEndian.Uint32(block[moreBlocksAt:])) << 32 //nolint:mnd // the upper half
	}
	if unit := uint64(size) << (binary.LittleEndian.Uint32(block[blockSizeAt:]) & 0xf); blocks < most/unit { //nolint:mnd // no block is larger
		is.size = int64(blocks * unit) //nolint:gosec // that is the most
	}
	is.short = at.Size() < is.size
	return is, nil
}

// createdSize is the size that a volume was created with, whatever is left of it; 0 if
// that is unknown.
func createdSize(image string) int64 {
	at, err := os.Stat(image)
	if err != nil {
		return 0
	}
	if is, err := readSuperblock(image); err == nil && is.short {
		return is.size
	}
	return at.Size()
}
