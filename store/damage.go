package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dormouse-run/dormouse"
)

// DamageError says from where on a session's log cannot be read. It is
// dormouse.ErrDamaged.
type DamageError struct {
	Session dormouse.SessionID
	// Seq is the first event that cannot be read; what follows it perhaps can. It is 0
	// if that cannot be told.
	Seq uint64
	// Found is its row as it is, if there is one. Nothing of it can be believed.
	Found *dormouse.Event
	Err   error // what is wrong
}

func (e *DamageError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("the log of %s cannot be read: %v", e.Session, e.Err)
	}
	return fmt.Sprintf("event %d of the log of %s cannot be read: %v", e.Seq, e.Session, e.Err)
}

// Unwrap makes it dormouse.ErrDamaged and nothing else. What is wrong is text: a blob that
// is not found must not look as if there were no such session.
func (*DamageError) Unwrap() error { return dormouse.ErrDamaged }

// What is wrong with a row.
var (
	errChanged = errors.New("its row is not what was written")
	errMissing = errors.New("there is no such row")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the checksum of an event's row in a session's log.
func Sum(id dormouse.SessionID, e dormouse.Event) int64 {
	b := make([]byte, 0, 256)
	b = binary.BigEndian.AppendUint64(b, e.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time.UnixMicro()))
	for _, s := range []string{string(id), string(e.ID), string(e.Type), string(e.Thread), string(e.Actor), string(e.Blob)} {
		b = append(append(b, s...), 0)
	}
	return int64(crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, e.Payload))
}

// Stored is an event as a store finds it.
type Stored struct {
	dormouse.Event
	// Sum is the checksum its row has; nil if it was written when there were none.
	Sum *int64
}

// Verified returns the events that were found after a seq up to the first that is not
// as it was written, and a *DamageError if there is one.
func Verified(id dormouse.SessionID, after uint64, found []Stored) ([]dormouse.Event, error) {
	events := make([]dormouse.Event, 0, len(found))
	for _, f := range found {
		if after++; f.Seq != after {
			return events, &DamageError{Session: id, Seq: after, Err: errMissing}
		}
		if f.Sum != nil && *f.Sum != Sum(id, f.Event) {
			return events, &DamageError{Session: id, Seq: after, Found: &f.Event, Err: errChanged}
		}
		events = append(events, f.Event)
	}
	return events, nil
}
