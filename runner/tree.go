package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dormouse-run/dormouse"
)

// Tree is a file or a directory and all below it, as a tar. A directory's
// entries are named from within it, a file by its own name. Regular files and
// directories travel with their permissions and times, symbolic links as they
// are; sockets, pipes and devices are passed over.
//
// Without Put the runner sends the tar. With Put it unpacks what it is sent
// below Path, which is made if it is missing, over what is there. Either way
// the last thing it sends is a TreeStatus.
type Tree struct {
	Path string `json:"path"`
	Put  bool   `json:"put,omitempty"`
}

// TreeStatus is the trailer of a tree. A tree without it is incomplete.
type TreeStatus struct {
	// Files counts entries of every kind, Bytes their content.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Changed counts the files that shrank while they were read; zeroes stand for
	// what they lost.
	Changed int `json:"changed,omitempty"`
	// Error says why the tree is not whole.
	Error string `json:"error"`
}

// treeStatusSize is the size of a status on the wire: JSON, padded with spaces, and a
// newline. The size is fixed so that the reader can separate it from the tar before
// it, and is that of a tar block so that tar readers tolerate it.
const treeStatusSize = 512

// Encode encodes s for the wire.
func (s TreeStatus) Encode() []byte {
	for limit := 400; ; limit /= 2 {
		s.Error = s.Error[:min(len(s.Error), limit)]
		b, err := json.Marshal(s)
		if err == nil && len(b) < treeStatusSize {
			b = append(b, bytes.Repeat([]byte{' '}, treeStatusSize-len(b))...)
			b[treeStatusSize-1] = '\n'
			return b
		}
	}
}

func decodeTreeStatus(b []byte) (TreeStatus, error) {
	var s TreeStatus
	if len(b) != treeStatusSize {
		return s, fmt.Errorf("tree was cut off: %w", io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return TreeStatus{}, fmt.Errorf("tree was cut off: %w", errors.Join(dormouse.ErrInvalid, err))
	}
	if s.Error != "" {
		return s, fmt.Errorf("runner refused: %.200q: %w", s.Error, dormouse.ErrInvalid)
	}
	return s, nil
}

// GetTree copies the tar of an opened tree to w. It returns nil only if the tree
// is whole.
func (c *Conn) GetTree(w io.Writer) (TreeStatus, error) {
	return ReadTree(c, w)
}

// ReadTree is GetTree for a stream that r reads, wherever it was opened: it
// copies all but the last treeStatusSize bytes, which are the tree's status.
func ReadTree(r io.Reader, w io.Writer) (TreeStatus, error) {
	buf := make([]byte, 64<<10)
	held := 0
	for {
		n, err := r.Read(buf[held:])
		held += n
		if ready := held - treeStatusSize; ready > 0 {
			if _, err := w.Write(buf[:ready]); err != nil {
				return TreeStatus{}, fmt.Errorf("get tree: %w", err)
			}
			held = copy(buf, buf[ready:held])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return TreeStatus{}, fmt.Errorf("get tree: %w", err)
		}
	}
	s, err := decodeTreeStatus(buf[:held])
	if err != nil {
		return s, fmt.Errorf("get tree: %w", err)
	}
	return s, nil
}

// PutTree sends the tar that r reads to an opened tree. It returns nil only once
// the runner has unpacked it whole.
func (c *Conn) PutTree(r io.Reader) (TreeStatus, error) {
	return WriteTree(c, r)
}

// WriteTree is PutTree for a stream that was opened elsewhere.
func WriteTree(c Duplex, r io.Reader) (TreeStatus, error) {
	from := &errTrackingReader{Reader: r}
	_, err := io.Copy(c, from)
	if from.err != nil {
		return TreeStatus{}, fmt.Errorf("put tree: %w", errors.Join(from.err, c.Close()))
	}
	// A runner that fails stops reading, and sends the reason.
	sent := err == nil && c.CloseWrite() == nil
	b, unread := io.ReadAll(io.LimitReader(c, treeStatusSize))
	s, bad := decodeTreeStatus(b)
	if s.Error != "" || bad == nil && sent {
		return s, bad
	}
	return TreeStatus{}, fmt.Errorf("put tree: %w", errors.Join(err, unread, bad))
}

// errTrackingReader records the error of its reader, so that WriteTree can tell it
// from an error of the writer.
type errTrackingReader struct {
	io.Reader
	err error
}

func (r *errTrackingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
