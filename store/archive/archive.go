// Package archive is the format in which a whole deployment is moved from one store to
// another, and backed up: every document with all its versions, and every session's log
// with its epoch, the chunks of open model calls, and the blobs that the logs name. What
// is derived from the logs is not in it.
//
// An archive is a zstd stream of pages:
//
//	kind    1 byte
//	length  4 bytes, big endian
//	body    as long as that
//	seal    32 bytes, the SHA-256 of the seal before and of all of the above
//
// and pages come in one order:
//
//	header { documents } { session { { blob | lost } events } { chunks } end } trailer
//
// Each seal covers everything up to it, so that a page is verified or refused before it
// is used, and the last seal is the digest of the archive. Neither side holds more than a
// page in memory. Nothing in an archive depends on when or where it was written: the same
// deployment makes the same archive.
package archive

import (
	"errors"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Errors of a reader.
var (
	// ErrDamaged: the archive is not as it was written.
	ErrDamaged = errors.New("archive is damaged")
	// ErrForeign: it is no archive of ours.
	ErrForeign = errors.New("not an archive of dormouse")
	// ErrNewer: a newer program wrote it, or it has sessions that only a newer one can go
	// on with.
	ErrNewer = errors.New("archive is of a newer version")
)

// Limits of an archive. A reader refuses lengths and counts beyond them, and a writer
// writes none.
const (
	// MaxRecords bounds the events, the chunks and the versions of one page.
	MaxRecords = 1024
	// MaxBlob bounds one blob.
	MaxBlob = 512 << 20

	maxPage   = 64 << 20 // of every other kind
	maxDetail = 64 << 10 // of a record without its text
	maxWindow = 8 << 20  // of zstd
)

// version is of the format. A reader refuses what is newer. The first had no
// documents, and the second did not say what version of the log a session needs.
const version = 3

// format is how a header begins.
const format = "dormouse archive"

// header is the first page.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

// Item is one page of an archive, as its reader gives it.
//
//sumtype:decl
type Item interface{ item() }

// Documents are versions of documents, by tenant, kind, id and version. The last
// version of each is the document itself.
type Documents []Version

// Version is one version of a document.
type Version struct {
	store.Document
	// Past says that a later one follows.
	Past bool `json:"past,omitempty"`
}

// Session begins a session.
type Session struct {
	ID    dormouse.SessionID `json:"session"`
	Epoch store.Epoch        `json:"epoch"`
	// Needs is the least version of the log that a program must know to go on with it; 0
	// if the archive does not say.
	Needs int `json:"needs,omitempty"`
}

// Blob is a payload that events of the next page of events name.
type Blob []byte

// Lost is a blob that they name and that was lost before the archive was made.
type Lost struct {
	Blob dormouse.Digest `json:"blob"`
}

// Events goes on with the session's log. Payloads are as they are stored.
type Events []dormouse.Event

// Chunks is what was seen of the session's open model calls.
type Chunks []store.Chunk

// End is the end of a session, and what is in it.
type End struct {
	Events uint64 `json:"events"`
	Chunks uint64 `json:"chunks,omitempty"`
	// Digest is of the log: equal digests mean equal logs.
	Digest dormouse.Digest `json:"digest"`
}

func (Documents) item() {}
func (Session) item()   {}
func (Blob) item()      {}
func (Lost) item()      {}
func (Events) item()    {}
func (Chunks) item()    {}
func (End) item()       {}

// Total is what is in an archive.
type Total struct {
	Sessions uint64 `json:"sessions"`
	Events   uint64 `json:"events"`
	Chunks   uint64 `json:"chunks"`
	Blobs    uint64 `json:"blobs"`
	Lost     uint64 `json:"lost"`
	// Documents counts documents, and Versions what is kept of their past.
	Documents uint64 `json:"documents,omitempty"`
	Versions  uint64 `json:"versions,omitempty"`
}
