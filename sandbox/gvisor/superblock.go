//go:build linux

package gvisor

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// fileSystem is what a file system in a file says of itself.
type fileSystem struct {
	open   bool  // it was not closed since it was last written to
	errors bool  // it has met some
	none   bool  // there is none: what is read is something else, or nothing
	short  bool  // the file ends before it does
	size   int64 // of the file that it was made in, 0 if it does not say
}

// readFileSystem reads the superblock of ext4.
func readFileSystem(image string) (fileSystem, error) {
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
		return fileSystem{}, err
	}
	defer func() { _ = f.Close() }()
	at, err := f.Stat()
	if err != nil {
		return fileSystem{}, err
	}
	block := make([]byte, size)
	if _, err := f.ReadAt(block, start); err != nil {
		return fileSystem{errors: true, none: errors.Is(err, io.EOF)}, nil
	}
	if binary.LittleEndian.Uint16(block[magicAt:]) != unix.EXT4_SUPER_MAGIC {
		return fileSystem{errors: true, none: true}, nil
	}
	incompat := binary.LittleEndian.Uint32(block[incompatAt:])
	is := fileSystem{
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

// sizeOf is how large a volume was made, whatever is left of it; 0 if that is not known.
func sizeOf(image string) int64 {
	at, err := os.Stat(image)
	if err != nil {
		return 0
	}
	if is, err := readFileSystem(image); err == nil && is.short {
		return is.size
	}
	return at.Size()
}
