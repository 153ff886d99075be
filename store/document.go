package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Documents keeps what is configured rather than lived: agents, environments and
// the like. Nothing of it is cached, so that all servers of a store see the same.
//
// What a write returned nil for must survive a kill and a power cut. A write must
// be all or nothing. One that fails with dormouse.ErrUnknownOutcome may have
// happened; every other error means that nothing changed.
type Documents interface {
	// Insert stores a document that is not there yet, as revision 1. One whose id
	// its tenant has for that kind already, or whose name, must be refused with
	// dormouse.ErrConflict.
	Insert(ctx context.Context, d Document) error

	// Replace puts d in the place of the revision of it that d has, which rises by
	// one. If the document is at another revision by now, if it has a higher
	// version than d, or if another document has d's name, it must be refused with
	// dormouse.ErrConflict, and if it is not there with dormouse.ErrNotFound. When
	// it was created must stay as it is. If keep is true and d has a higher version,
	// the version before must stay readable.
	Replace(ctx context.Context, d Document, keep bool) error

	// Document must return a document, or dormouse.ErrNotFound.
	Document(ctx context.Context, ref DocumentRef) (Document, error)

	// DocumentVersion must return a version of a document, as it was when it was
	// replaced if it is not the newest, or dormouse.ErrNotFound.
	DocumentVersion(ctx context.Context, ref DocumentRef, version int) (Document, error)

	// Documents must list newest first, at most q.Limit, from q.After on. A q.After
	// that is not there must be dormouse.ErrNotFound.
	Documents(ctx context.Context, q DocumentQuery) ([]Document, error)

	// DocumentVersions must list the versions of a document that can be read, the
	// highest first, at most limit, below the version before, or from the newest on
	// if that is 0. A document that is not there must be dormouse.ErrNotFound.
	DocumentVersions(ctx context.Context, ref DocumentRef, before, limit int) ([]Document, error)

	// Remove must make a document be gone, with all its versions, and its id and
	// name free. One that is not there must be dormouse.ErrNotFound.
	Remove(ctx context.Context, ref DocumentRef) error

	// DocumentRefs must list every document of every tenant, by tenant, kind and
	// id in the order of their bytes, after the given one, at most limit.
	DocumentRefs(ctx context.Context, after DocumentRef, limit int) ([]DocumentRef, error)

	// InsertVersion stores a version of an imported document, ahead of the document: it
	// must not be visible before Insert has stored that. One that is inserted again must
	// replace it. If the document is there already it must be refused with
	// dormouse.ErrConflict.
	InsertVersion(ctx context.Context, d Document) error
}

// DocumentRef says which document.
type DocumentRef struct {
	Tenant string
	Kind   string
	ID     string
}

func (r DocumentRef) String() string { return r.Kind + " " + r.ID }

// Compare orders documents by tenant, kind and id.
func (r DocumentRef) Compare(o DocumentRef) int {
	return cmp.Or(cmp.Compare(r.Tenant, o.Tenant), cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.ID, o.ID))
}

// Document is something that is configured. Times must come back as they were
// given, in UTC, and its body byte for byte; a caller gives whole microseconds.
type Document struct {
	Tenant string `json:"tenant"`
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	// Name, if it is not empty, is that of no other document of its tenant and
	// kind, archived or not.
	Name string `json:"name,omitempty"`
	// Version is what people call the state it is in. It is at least 1 and never
	// falls.
	Version int `json:"version"`
	// Revision counts its writes, from 1. It fences Replace.
	Revision int       `json:"-"`
	Created  time.Time `json:"created_at"`
	Updated  time.Time `json:"updated_at"`
	// Archived is when it was put away; lists leave it out unless asked.
	Archived time.Time `json:"archived_at,omitzero"`
	// Body is JSON.
	Body []byte `json:"-"`
}

// Ref says which document it is.
func (d Document) Ref() DocumentRef { return DocumentRef{Tenant: d.Tenant, Kind: d.Kind, ID: d.ID} }

// Limits of a document.
const (
	// MaxDocument bounds a body.
	MaxDocument = 1 << 20
	// MaxDocumentName bounds a name.
	MaxDocumentName = 1024
	// MaxDocumentRef bounds each part of a DocumentRef.
	MaxDocumentRef = 256
)

// Validate refuses a document that some store could not keep. Stores call it before they
// write.
func (d Document) Validate() error {
	if d.Kind == "" || d.ID == "" {
		return fmt.Errorf("a document needs a kind and an id: %w", dormouse.ErrInvalid)
	}
	if n := max(len(d.Tenant), len(d.Kind), len(d.ID)); n > MaxDocumentRef {
		return fmt.Errorf("tenant, kind or id of a document is %d bytes, at most %d are taken: %w", n, MaxDocumentRef, dormouse.ErrTooLarge)
	}
	if len(d.Name) > MaxDocumentName {
		return fmt.Errorf("the name of a document is %d bytes, at most %d are taken: %w", len(d.Name), MaxDocumentName, dormouse.ErrTooLarge)
	}
	for _, s := range []string{d.Tenant, d.Kind, d.ID, d.Name} {
		if err := dormouse.ValidateText(s); err != nil {
			return err
		}
	}
	if d.Version < 1 {
		return fmt.Errorf("a document has no version %d: %w", d.Version, dormouse.ErrInvalid)
	}
	if d.Created.IsZero() || d.Updated.IsZero() {
		return fmt.Errorf("a document needs to have been made at a time: %w", dormouse.ErrInvalid)
	}
	if len(d.Body) > MaxDocument {
		return fmt.Errorf("a document is %d bytes, at most %d are taken: %w", len(d.Body), MaxDocument, dormouse.ErrTooLarge)
	}
	if !json.Valid(d.Body) {
		return fmt.Errorf("a document is not JSON: %w", dormouse.ErrInvalid)
	}
	return nil
}

// DocumentQuery selects documents to list.
type DocumentQuery struct {
	Tenant string
	Kind   string
	// Name selects the one that has it, when not empty.
	Name string
	// CreatedFrom and CreatedUntil select what was created then or later, or then
	// or earlier. The zero time selects everything.
	CreatedFrom, CreatedUntil time.Time
	// Archived also lists what was put away.
	Archived bool
	// After is the id of the last document of the page before.
	After string
	Limit int
}

// Window is as that of a Query.
func (q DocumentQuery) Window() (from, until time.Time) {
	return Query{CreatedFrom: q.CreatedFrom, CreatedUntil: q.CreatedUntil}.Window()
}
