package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/store"
)

// A record is an event or a chunk: its details as JSON, then its text as it is,
// each after its length.

// place is the details of a chunk.
type place struct {
	Op dormouse.OpID `json:"op"`
	N  int           `json:"n"`
}

func appendRecord(b, detail, text []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(detail))), detail...)
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendEvent(b []byte, e dormouse.Event) []byte {
	text := e.Payload
	e.Payload = nil
	return appendRecord(b, dormouse.Encode(e), text)
}

func appendChunk(b []byte, c store.Chunk) []byte {
	return appendRecord(b, dormouse.Encode(place{c.Op, c.N}), []byte(c.Text))
}

// records takes a body apart, and hands each record to add.
func records(body []byte, add func(detail, text []byte) error) error {
	for n := 0; len(body) > 0; n++ {
		if n == MaxRecords {
			return fmt.Errorf("a page has more than %d records", MaxRecords)
		}
		var detail, text []byte
		var ok bool
		if detail, body, ok = cut(body); !ok || len(detail) > maxDetail {
			return errors.New("a record is not whole")
		}
		if text, body, ok = cut(body); !ok {
			return errors.New("a record is not whole")
		}
		if err := add(detail, text); err != nil {
			return err
		}
	}
	return nil
}

// cut takes off what comes after its length.
func cut(b []byte) (field, rest []byte, ok bool) {
	n, width := binary.Uvarint(b)
	if width <= 0 {
		return nil, nil, false
	}
	if b = b[width:]; n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

func readEvent(detail, text []byte) (e dormouse.Event, err error) {
	if err := decode(detail, &e); err != nil {
		return e, err
	}
	switch {
	case e.Payload != nil, e.Blob != "" && len(text) > 0:
		return e, errors.New("an event has two payloads")
	case e.Blob != "" && e.Blob.Validate() != nil:
		return e, errors.New("an event names a blob that cannot be")
	case e.Time.Location() != time.UTC || !e.Time.Equal(e.Time.Truncate(time.Microsecond)):
		return e, errors.New("an event has a time that no store keeps")
	}
	if len(text) > 0 {
		e.Payload = text
	}
	return e, nil
}

func readChunk(detail, text []byte) (store.Chunk, error) {
	var p place
	err := decode(detail, &p)
	if err == nil && p.N < 0 {
		err = errors.New("a chunk has a place before the first")
	}
	return store.Chunk{Op: p.Op, N: p.N, Text: string(text)}, err
}

// decode reads JSON that has no field we do not know: it would be lost.
func decode(b []byte, v any) error {
	if err := closedjson.Decode(b, v); err != nil {
		return fmt.Errorf("its JSON cannot be read: %w", err)
	}
	return nil
}

// Sum takes the digest of a log, wherever the log is.
type Sum struct {
	hash   hash.Hash
	record []byte
}

// NewSum returns the sum of an empty log.
func NewSum() *Sum { return &Sum{hash: sha256.New()} }

// Add adds events to the digest.
func (s *Sum) Add(events ...dormouse.Event) {
	for _, e := range events {
		s.record = appendEvent(s.record[:0], e)
		s.hash.Write(s.record)
	}
}

// Digest is the digest of what was added so far.
func (s *Sum) Digest() dormouse.Digest { return seal(s.hash.Sum(nil)).digest() }
