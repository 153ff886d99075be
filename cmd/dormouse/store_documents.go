//go:build !windows

package main

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
	err := eachDocument(ctx, x.from.store, func(ref store.DocumentRef) error {
		x.progress.tell("export: now at %s", ref)
		return eachVersion(ctx, x.from.store, ref, func(v archive.Version) error {
			page, bytes = append(page, v), bytes+len(v.Body)
			if len(page) == pageEvents || bytes > pageBytes {
				return flush()
			}
			return nil
		})
	})
	return errors.Join(err, flush())
}

// eachDocument calls f with every document, in the order of an archive.
func eachDocument(ctx context.Context, s store.Documents, f func(store.DocumentRef) error) error {
	const page = 500
	var after store.DocumentRef
	for {
		refs, err := s.DocumentRefs(ctx, after, page)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if err := f(ref); err != nil {
				return fmt.Errorf("%s: %w", ref, err)
			}
		}
		if len(refs) < page {
			return nil
		}
		after = refs[len(refs)-1]
	}
}

// eachVersion calls f with every version of a document, the oldest first.
func eachVersion(ctx context.Context, s store.Documents, ref store.DocumentRef, f func(archive.Version) error) error {
	const page = 16 // they may be large
	var versions []int
	for before := 0; ; before = versions[len(versions)-1] {
		found, err := s.DocumentVersions(ctx, ref, before, page)
		if err != nil {
			return err
		}
		for _, d := range found {
			versions = append(versions, d.Version)
		}
		if len(found) < page {
			break
		}
	}
	for n, version := range slices.Backward(versions) {
		d, err := s.DocumentVersion(ctx, ref, version)
		if err != nil {
			return err
		}
		if err := f(archive.Version{Document: d, Past: n > 0}); err != nil {
			return err
		}
	}
	return nil
}

// arriving is the document at hand of an import.
type arriving struct {
	ref  store.DocumentRef
	here bool              // it was there before
	sums []dormouse.Digest // of the versions that were read of it
}

// document takes a version of a document in. Nobody sees a document before its past
// is there, too, so that one that is here is all here.
func (i *importer) document(ctx context.Context, v archive.Version) error {
	if i.doc.ref != v.Ref() {
		_, err := i.to.store.Document(ctx, v.Ref())
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
			return i.to.store.Carry(ctx, v.Document)
		}
		return nil
	case !i.doc.here:
		if err := i.insert(ctx, v.Document); err != nil || !i.writes {
			return err
		}
	}
	same, err := i.doc.stored(ctx, i.to.store)
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
		others, err := i.to.store.Documents(ctx, store.DocumentQuery{Tenant: d.Tenant, Kind: d.Kind, Name: d.Name, Archived: true, Limit: 1})
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
	return i.to.store.Insert(ctx, d)
}

// stored reports whether what is in a store is what was read.
func (a arriving) stored(ctx context.Context, s store.Documents) (bool, error) {
	var sums []dormouse.Digest
	err := eachVersion(ctx, s, a.ref, func(v archive.Version) error {
		sums = append(sums, v.Digest())
		return nil
	})
	return slices.Equal(sums, a.sums), err
}
