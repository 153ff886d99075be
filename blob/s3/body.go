package s3

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// partSize is how much is sent at once, unless a blob would then have more parts
// than a server takes.
const (
	partSize = 16 << 20
	maxParts = 10_000
)

// body is bytes to be put.
type body struct {
	digest dormouse.Digest
	from   io.ReaderAt
	size   int64
	split  []part // computed when first asked for
}

// part is a piece of a body that is sent by itself.
type part struct {
	offset, size int64
	sum          [sha256.Size]byte
}

// parts returns the pieces, one if it is small enough.
func (b *body) parts() ([]part, error) {
	if b.split != nil {
		return b.split, nil
	}
	if b.size <= partSize {
		sum, err := hex.DecodeString(strings.TrimPrefix(string(b.digest), "sha256:"))
		if err != nil {
			return nil, err
		}
		b.split = []part{{size: b.size, sum: [sha256.Size]byte(sum)}}
		return b.split, nil
	}
	step := max(partSize, (b.size+maxParts-1)/maxParts)
	var all []part
	for offset := int64(0); offset < b.size; offset += step {
		p := part{offset: offset, size: min(step, b.size-offset)}
		sum := sha256.New()
		if _, err := io.Copy(sum, b.reader(p)); err != nil {
			return nil, fmt.Errorf("read what is to be sent: %w", err)
		}
		p.sum = [sha256.Size]byte(sum.Sum(nil))
		all = append(all, p)
	}
	b.split = all
	return all, nil
}

// reader reads a piece, as often as it has to be sent.
func (b *body) reader(p part) io.ReadSeeker { return io.NewSectionReader(b.from, p.offset, p.size) }

// checksum is what a server that has the body says of it: the SHA-256 of the
// bytes, or of those of the parts and how many these are.
func (b *body) checksum() (string, error) {
	parts, err := b.parts()
	if err != nil {
		return "", err
	}
	if len(parts) == 1 {
		return parts[0].checksum(), nil
	}
	all := sha256.New()
	for _, p := range parts {
		all.Write(p.sum[:])
	}
	return fmt.Sprintf("%s-%d", base64.StdEncoding.EncodeToString(all.Sum(nil)), len(parts)), nil
}

func (p part) checksum() string { return base64.StdEncoding.EncodeToString(p.sum[:]) }
func (p part) hex() string      { return hex.EncodeToString(p.sum[:]) }
