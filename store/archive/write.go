package archive

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Writer writes an archive. It trusts its caller to keep the order of pages; a
// reader does not.
type Writer struct {
	zip   *zstd.Encoder
	pages pageWriter
	sum   *Sum
	end   End
	total Total
}

// NewWriter begins an archive.
func NewWriter(out io.Writer) (*Writer, error) {
	zip, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("begin archive: %w", err)
	}
	w := &Writer{zip: zip, pages: pageWriter{out: zip}}
	return w, w.put(headerPage, header{format, version})
}

// Session begins a session.
func (w *Writer) Session(s Session) error {
	w.sum, w.end = NewSum(), End{}
	return w.put(sessionPage, s)
}

// Blob writes a payload that the next events name.
func (w *Writer) Blob(b []byte) error {
	w.total.Blobs++
	return w.page(blobPage, b)
}

// Lost says that there is no such payload any more.
func (w *Writer) Lost(d dormouse.Digest) error {
	w.total.Lost++
	return w.put(lostPage, Lost{d})
}

// Events writes one page of the session's log.
func (w *Writer) Events(events []dormouse.Event) error {
	var body []byte
	for _, e := range events {
		body = appendEvent(body, e)
	}
	w.sum.Add(events...)
	w.end.Events += uint64(len(events))
	return w.records(eventsPage, len(events), body)
}

// Chunks writes what was seen of open model calls, in one page.
func (w *Writer) Chunks(chunks []store.Chunk) error {
	var body []byte
	for _, c := range chunks {
		body = appendChunk(body, c)
	}
	w.end.Chunks += uint64(len(chunks))
	return w.records(chunksPage, len(chunks), body)
}

// End ends the session.
func (w *Writer) End() error {
	w.end.Digest = w.sum.Digest()
	w.total.Sessions++
	w.total.Events += w.end.Events
	w.total.Chunks += w.end.Chunks
	return w.put(endPage, w.end)
}

// Close ends the archive, and returns its digest and what is in it. Without it
// the archive is refused.
func (w *Writer) Close() (dormouse.Digest, Total, error) {
	err := errors.Join(w.put(trailerPage, w.total), w.zip.Close())
	if err != nil {
		return "", Total{}, fmt.Errorf("end archive: %w", err)
	}
	return w.pages.seal.digest(), w.total, nil
}

func (w *Writer) records(k kind, n int, body []byte) error {
	if n > MaxRecords {
		return fmt.Errorf("write archive: %d records are too many for a page, which takes %d: %w", n, MaxRecords, dormouse.ErrTooLarge)
	}
	return w.page(k, body)
}

func (w *Writer) put(k kind, v any) error { return w.page(k, dormouse.Encode(v)) }

func (w *Writer) page(k kind, body []byte) error {
	if err := w.pages.write(k, body); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}
