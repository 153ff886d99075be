package peer

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/dormouse-run/dormouse"
)

const (
	// maxPiece bounds what one frame carries.
	maxPiece = 32 << 10
	// headSize is the length of what a frame carries.
	headSize = 2
	// tagSize is what sealing adds.
	tagSize = 16
)

// errForged means that a stream is not what the other server sent: something was
// changed, left out, repeated or put in on the way.
var errForged = fmt.Errorf("the stream was changed on its way: %w", dormouse.ErrInvalid)

// sealing is AES-256-GCM under a key that one way of one stream has for itself.
// The frames are counted, and the count is the GCM nonce: a frame opens at its
// own place and nowhere else.
type sealing struct {
	aead  cipher.AEAD
	count uint64
	iv    [12]byte
}

func newSealing(key []byte) sealing {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only of a key of another length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // only of another kind of block
	}
	return sealing{aead: aead}
}

// next is the nonce of the next frame.
func (s *sealing) next() []byte {
	binary.BigEndian.PutUint64(s.iv[4:], s.count)
	s.count++
	return s.iv[:]
}

// sealer writes a stream as frames: the length of the sealed bytes in two bytes, and
// these. An empty frame is the last; without it the reader takes the stream for cut off.
type sealer struct {
	w io.Writer

	mu  sync.Mutex
	key sealing // guarded by mu
	buf []byte  // guarded by mu
	err error   // guarded by mu; why nothing more can be written
}

func newSealer(w io.Writer, key []byte) *sealer { return &sealer{w: w, key: newSealing(key)} }

// Write sends b.
func (s *sealer) Write(b []byte) (sent int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		n := min(len(b), maxPiece)
		if err := s.frame(b[:n]); err != nil {
			return sent, err
		}
		b, sent = b[n:], sent+n
	}
	return sent, nil
}

// Close says that nothing more will be sent. It leaves the connection open.
func (s *sealer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, io.ErrClosedPipe) {
		return nil
	}
	err := s.frame(nil)
	if err == nil {
		s.err = io.ErrClosedPipe
	}
	return err
}

// frame must be called with mu held. A frame of which only a part was written
// leaves nothing that could follow it.
func (s *sealer) frame(b []byte) error {
	if s.err != nil {
		return s.err
	}
	s.buf = binary.BigEndian.AppendUint16(s.buf[:0], uint16(len(b))) //nolint:gosec // at most maxPiece
	s.buf = s.key.aead.Seal(s.buf, s.key.next(), b, nil)
	_, s.err = s.w.Write(s.buf)
	return s.err
}

// opener reads what a sealer wrote. It gives nothing that was not proven, and ends
// with io.EOF only where the other side has said that it does. It is for one
// reader at a time.
type opener struct {
	r    io.Reader
	key  sealing
	buf  []byte
	rest []byte // opened, and not read yet
	err  error  // why nothing more can be read
}

func newOpener(r io.Reader, key []byte) *opener { return &opener{r: r, key: newSealing(key)} }

// Read reads what the other side has sent.
func (o *opener) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(o.rest) == 0 && o.err == nil {
		o.err = o.next()
	}
	if len(o.rest) == 0 {
		return 0, o.err
	}
	n := copy(b, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

// next reads a frame.
func (o *opener) next() error {
	var head [headSize]byte
	if _, err := io.ReadFull(o.r, head[:]); err != nil {
		return cut(err)
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n > maxPiece {
		return errForged
	}
	if n += tagSize; cap(o.buf) < n {
		o.buf = make([]byte, n)
	}
	sealed := o.buf[:n]
	if _, err := io.ReadFull(o.r, sealed); err != nil {
		return cut(err)
	}
	b, err := o.key.aead.Open(sealed[:0], o.key.next(), sealed, nil)
	if err != nil {
		return errForged
	}
	if len(b) == 0 {
		return io.EOF
	}
	o.rest = b
	return nil
}

// cut is what the end of a connection means to the reader of a stream.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
