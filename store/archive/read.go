package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse"
)

// Reader reads an archive of an unknown author.
type Reader struct {
	in    *source
	pages pageReader
	// version is the last that was read of a document, if one was.
	version *Version
	// id is the session that is being read, or empty between sessions.
	id    dormouse.SessionID
	sum   *Sum
	end   End                      // of the session so far
	blobs map[dormouse.Digest]bool // those since the last events, and whether they were named
	total Total
	over  bool
}

// What is wrong with a page.
var (
	errShort = errors.New("it ends too early")
	errSeal  = errors.New("what is there is not what was written")
	errOrder = errors.New("a page is not where it belongs")
)

// NewReader begins to read an archive. It refuses what is none with ErrForeign,
// one that needs a newer program with ErrNewer, here or later, and one that was cut off or changed, here
// or later, with ErrDamaged.
func NewReader(in io.Reader) (*Reader, error) {
	from := &source{in: in}
	zip, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	r := &Reader{in: from, pages: pageReader{in: zip}, blobs: make(map[dormouse.Digest]bool)}
	k, body, err := r.pages.read()
	if err != nil && !errors.Is(err, zstd.ErrMagicMismatch) {
		return nil, r.damaged(err)
	}
	var h header // a newer one may say more
	if err != nil || k != headerPage || json.Unmarshal(body, &h) != nil || h.Format != format {
		return nil, ErrForeign
	}
	if h.Version > version {
		return nil, fmt.Errorf("it has version %d and this program knows %d: %w", h.Version, version, ErrNewer)
	}
	return r, nil
}

// Next returns the next item, or io.EOF after the last: then the archive was
// whole, up to its end.
func (r *Reader) Next() (Item, error) {
	if r.over {
		return nil, io.EOF
	}
	k, body, err := r.pages.read()
	if err != nil {
		return nil, r.damaged(err)
	}
	item, err := r.item(k, body)
	if err != nil {
		return nil, r.damaged(err)
	}
	if item == nil {
		r.over = true
		return nil, io.EOF
	}
	return item, nil
}

// Digest is that of everything read so far; after the last item, the archive's.
func (r *Reader) Digest() dormouse.Digest { return r.pages.seal.digest() }

// Total is what is in the archive, once the last item was read.
func (r *Reader) Total() Total { return r.total }

// damaged says what is wrong and where, unless it is the disk.
func (r *Reader) damaged(err error) error {
	if r.in.err != nil {
		return fmt.Errorf("read archive: %w", r.in.err)
	}
	if errors.Is(err, dormouse.ErrNewerLog) { // it is what was written, up to here
		return fmt.Errorf("%w: %w", ErrNewer, err)
	}
	where := ""
	if r.id != "" {
		where = fmt.Sprintf(" in %s after event %d", r.id, r.end.Events)
	}
	return fmt.Errorf("%w%s, after %d pages and %d bytes unpacked: %w", ErrDamaged, where, r.pages.count, r.pages.offset, err)
}

// item makes of a page what it is, if it belongs here; nil is the end.
func (r *Reader) item(k kind, body []byte) (Item, error) {
	inside := r.id != ""
	switch {
	case !inside && r.total.Sessions == 0 && k == documentsPage:
		return r.documents(body)
	case !inside && !r.half() && k == sessionPage:
		return r.session(body)
	case !inside && !r.half() && k == trailerPage:
		return nil, r.trailer(body)
	case inside && r.end.Chunks == 0 && (k == blobPage || k == lostPage):
		return r.blob(k, body)
	case inside && r.end.Chunks == 0 && k == eventsPage:
		return r.events(body)
	case inside && r.end.Events > 0 && len(r.blobs) == 0 && k == chunksPage:
		return r.chunks(body)
	case inside && r.end.Events > 0 && len(r.blobs) == 0 && k == endPage:
		return r.ending(body)
	}
	return nil, errOrder
}

func (r *Reader) session(body []byte) (Item, error) {
	var s Session
	if err := errors.Join(decode(body, &s), s.ID.Validate()); err != nil {
		return nil, err
	}
	if s.Needs > dormouse.LogVersion {
		return nil, &dormouse.NewerLogError{Session: s.ID, Needs: s.Needs}
	}
	r.id, r.sum, r.end = s.ID, NewSum(), End{}
	return s, nil
}

func (r *Reader) blob(k kind, body []byte) (Item, error) {
	if len(r.blobs) == MaxRecords {
		return nil, errOrder
	}
	if k == blobPage {
		r.blobs[dormouse.DigestOf(body)] = false
		r.total.Blobs++
		return Blob(body), nil
	}
	var l Lost
	if err := errors.Join(decode(body, &l), l.Blob.Validate()); err != nil {
		return nil, err
	}
	r.blobs[l.Blob] = false
	r.total.Lost++
	return l, nil
}

func (r *Reader) events(body []byte) (Item, error) {
	var events Events
	err := records(body, func(detail, text []byte) error {
		e, err := readEvent(detail, text)
		if err != nil {
			return err
		}
		if want := r.end.Events + uint64(len(events)) + 1; e.Seq != want {
			return fmt.Errorf("event %d stands where %d should", e.Seq, want)
		}
		if needs := e.Type.Version(); needs > dormouse.LogVersion {
			return &dormouse.NewerLogError{Session: r.id, Needs: needs, Type: e.Type}
		}
		if e.Blob != "" {
			if _, ok := r.blobs[e.Blob]; !ok {
				return fmt.Errorf("event %d names %s, which did not come before it", e.Seq, e.Blob)
			}
			r.blobs[e.Blob] = true
		}
		events = append(events, e)
		return nil
	})
	if err == nil && len(events) == 0 {
		err = errors.New("a page of events has none")
	}
	if err != nil {
		return nil, err
	}
	for d, named := range r.blobs {
		if !named {
			return nil, fmt.Errorf("nothing names %s", d)
		}
	}
	clear(r.blobs)
	r.sum.Add(events...)
	r.end.Events += uint64(len(events))
	return events, nil
}

func (r *Reader) chunks(body []byte) (Item, error) {
	var chunks Chunks
	err := records(body, func(detail, text []byte) error {
		c, err := readChunk(detail, text)
		chunks = append(chunks, c)
		return err
	})
	if err == nil && len(chunks) == 0 {
		err = errors.New("a page of chunks has none")
	}
	if err != nil {
		return nil, err
	}
	r.end.Chunks += uint64(len(chunks))
	return chunks, nil
}

// ending holds what the session says of itself against what was read.
func (r *Reader) ending(body []byte) (Item, error) {
	var said End
	if err := decode(body, &said); err != nil {
		return nil, err
	}
	r.end.Digest = r.sum.Digest()
	if said != r.end {
		return nil, fmt.Errorf("%s has %d events and %d chunks, %s, and says %d and %d, %s", r.id,
			r.end.Events, r.end.Chunks, r.end.Digest, said.Events, said.Chunks, said.Digest)
	}
	r.total.Sessions++
	r.total.Events += r.end.Events
	r.total.Chunks += r.end.Chunks
	r.id = ""
	return said, nil
}

// trailer compares what the archive says of itself with what was read, and makes sure
// that nothing follows.
func (r *Reader) trailer(body []byte) error {
	var said Total
	if err := decode(body, &said); err != nil {
		return err
	}
	if said != r.total {
		return fmt.Errorf("it has %+v and says %+v", r.total, said)
	}
	if _, err := io.ReadFull(r.pages.in, make([]byte, 1)); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}

// source is what an archive is read from. It tells a disk that fails from an
// archive that is damaged.
type source struct {
	in  io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
