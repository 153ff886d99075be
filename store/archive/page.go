package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/dormouse-run/dormouse"
)

// kind says what a page is.
type kind byte

// The kinds of page.
const (
	headerPage    kind = 'H'
	documentsPage kind = 'D'
	sessionPage   kind = 'S'
	blobPage      kind = 'B'
	lostPage      kind = 'L'
	eventsPage    kind = 'E'
	chunksPage    kind = 'C'
	endPage       kind = 'Z'
	trailerPage   kind = 'T'
)

// maxSize is how long the body of a page may be.
func (k kind) maxSize() int {
	if k == blobPage {
		return MaxBlob
	}
	return maxPage
}

// headSize is the length of what comes before a body.
const headSize = 5

// seal covers everything up to it.
type seal [sha256.Size]byte

// next is the seal that follows on a page.
func (s seal) next(head, body []byte) seal {
	h := sha256.New()
	h.Write(s[:])
	h.Write(head)
	h.Write(body)
	return seal(h.Sum(nil))
}

func (s seal) digest() dormouse.Digest { return dormouse.DigestOfSum(s) }

// pageWriter writes pages.
type pageWriter struct {
	out  io.Writer
	seal seal
}

func (w *pageWriter) write(k kind, body []byte) error {
	if len(body) > k.maxSize() {
		return fmt.Errorf("a page of %d bytes is too large for an archive, which takes %d: %w", len(body), k.maxSize(), dormouse.ErrTooLarge)
	}
	head := binary.BigEndian.AppendUint32([]byte{byte(k)}, uint32(len(body))) //nolint:gosec // bounded above
	w.seal = w.seal.next(head, body)
	for _, b := range [][]byte{head, body, w.seal[:]} {
		if _, err := w.out.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// pageReader reads pages and trusts none before its seal.
type pageReader struct {
	in     io.Reader
	seal   seal
	count  int   // of the pages that were read
	offset int64 // of the next one, in what is unpacked
}

// read returns the next page. It does not keep the body.
func (r *pageReader) read() (kind, []byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return 0, nil, short(err)
	}
	k, n := kind(head[0]), binary.BigEndian.Uint32(head[1:])
	if int64(n) > int64(k.maxSize()) {
		return 0, nil, fmt.Errorf("a page says that it has %d bytes", n)
	}
	var body bytes.Buffer // grows with what is there, not with what is said to be
	if _, err := io.CopyN(&body, r.in, int64(n)); err != nil {
		return 0, nil, short(err)
	}
	var found seal
	if _, err := io.ReadFull(r.in, found[:]); err != nil {
		return 0, nil, short(err)
	}
	if found != r.seal.next(head[:], body.Bytes()) {
		return 0, nil, errSeal
	}
	r.seal = found
	r.offset += int64(headSize + body.Len() + len(found))
	r.count++
	return k, body.Bytes(), nil
}

// short says in our words that bytes are missing.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort
	}
	return err
}
