package imagefile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// How compressed data begins.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

const magicLen = 4

// compressed reports whether data that begins like this is compressed.
func compressed(magic []byte) bool {
	return bytes.HasPrefix(magic, gzipMagic) || bytes.HasPrefix(magic, zstdMagic)
}

// maxWindow bounds the memory that a zstd layer can ask for. It is what the
// highest levels use.
const maxWindow = 128 << 20

// Decompress reads a layer in whichever way it is compressed. Media types say it
// too, and are often wrong.
func Decompress(from *bufio.Reader) (plain io.Reader, stop func(), err error) {
	magic, err := from.Peek(magicLen)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("read layer: %w", err)
	}
	switch {
	case bytes.HasPrefix(magic, gzipMagic):
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, nil, fmt.Errorf("decompress layer: %w", err)
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(magic, zstdMagic):
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("decompress layer: %w", err)
		}
		return z, z.Close, nil
	}
	return from, func() {}, nil
}
