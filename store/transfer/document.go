package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
)

// documents writes every document with all its versions.
func (x *exporter) documents(ctx context.Context) error {
	var page []archive.Version
	bytes := 0
	flush := func() (err error) {
		if len(page) > 0 {
			err = x.to.Documents(page)
		}
		page, bytes = page[:0], 0
		return err
	}
	err := EachDocument(ctx, x.from.Store, func(ref store.DocumentRef) error {
		x.progress.Update("export: now at %s", ref)
		return EachVersion(ctx, x.from.Store, ref, func(v archive.Version) error {
			page, bytes = append(page, v), bytes+len(v.Body)
			if len(page) == PageEvents || bytes > pageBytes {
				return flush()
			}
			return nil
		})
	})
	return errors.Join(err, flush())
}

// arriving is the document at hand of an import.
type arriving struct {
	ref  store.DocumentRef
	here bool              // it was there before
	sums []dormouse.Digest // of the versions that were read of it
}

// document imports a version of a document. The current version is stored last, so that a
// document that is visible is complete.
func (i *importer) document(ctx context.Context, v archive.Version) error {
	if i.doc.ref != v.Ref() {
		_, err := i.to.Store.Document(ctx, v.Ref())
		if err != nil && !errors.Is(err, dormouse.ErrNotFound) {
			return err
		}
		i.doc = arriving{ref: v.Ref(), here: err == nil}
	}
	i.doc.sums = append(i.doc.sums, v.Digest())
	switch {
	case i.doc.here && v.Past:
		return nil
	case v.Past:
		if i.writes {
			return i.to.Store.InsertVersion(ctx, v.Document)
		}
		return nil
	case !i.doc.here:
		if err := i.insert(ctx, v.Document); err != nil || !i.writes {
			return err
		}
	}
	same, err := i.doc.stored(ctx, i.to.Store)
	switch {
	case err != nil:
		return err
	case !same && i.doc.here:
		return fmt.Errorf("it is another one here; import into an empty store: %w", dormouse.ErrConflict)
	case !same:
		return errors.New("it was not stored as it is in the archive")
	}
	if i.writes {
		i.done.VerifiedDocuments++
	}
	return nil
}

// insert adds a document, if no other has its name.
func (i *importer) insert(ctx context.Context, d store.Document) error {
	if d.Name != "" {
		others, err := i.to.Store.Documents(ctx, store.DocumentQuery{Tenant: d.Tenant, Kind: d.Kind, Name: d.Name, Archived: true, Limit: 1})
		if err != nil {
			return err
		}
		if len(others) > 0 {
			return fmt.Errorf("%s is called %q here, too: %w", others[0].Ref(), d.Name, dormouse.ErrConflict)
		}
	}
	if !i.writes {
		return nil
	}
	return i.to.Store.Insert(ctx, d)
}

// stored reports whether what is in a store is what was read.
func (a arriving) stored(ctx context.Context, s store.Documents) (bool, error) {
	var sums []dormouse.Digest
	err := EachVersion(ctx, s, a.ref, func(v archive.Version) error {
		sums = append(sums, v.Digest())
		return nil
	})
	return slices.Equal(sums, a.sums), err
}
