package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// document is all there is of one document.
type document struct {
	now    store.Document
	exists bool // it is not only carried
	past   map[int]store.Document
}

// stored is a document that shares nothing with the given one.
func stored(d store.Document) store.Document {
	d.Created, d.Updated, d.Archived = utc(d.Created), utc(d.Updated), utc(d.Archived)
	d.Body = slices.Clone(d.Body)
	return d
}

// Insert stores a document that is not there yet.
func (s *Store) Insert(ctx context.Context, d store.Document) error {
	return s.document(ctx, "insert", d, func(held *document) error {
		if held.exists || s.base.taken(d) {
			return dormouse.ErrConflict
		}
		d.Revision = 1
		held.now, held.exists = stored(d), true
		s.base.documents[d.Ref()] = held
		return nil
	})
}

// Replace puts a document in the place of the one with its revision.
func (s *Store) Replace(ctx context.Context, d store.Document, keep bool) error {
	return s.document(ctx, "replace", d, func(held *document) error {
		switch was := held.now; {
		case !held.exists:
			return dormouse.ErrNotFound
		case was.Revision != d.Revision || was.Version > d.Version || s.base.taken(d):
			return dormouse.ErrConflict
		case keep && was.Version < d.Version:
			held.past[was.Version] = was
		}
		d.Created = held.now.Created
		d.Revision++
		held.now = stored(d)
		return nil
	})
}

// InsertVersion stores a version of a document that is not there yet.
func (s *Store) InsertVersion(ctx context.Context, d store.Document) error {
	return s.document(ctx, "carry", d, func(held *document) error {
		if held.exists {
			return dormouse.ErrConflict
		}
		held.past[d.Version] = stored(d)
		s.base.documents[d.Ref()] = held
		return nil
	})
}

// document calls change with what there is of a document, or nothing if it is not
// there.
func (s *Store) document(ctx context.Context, verb string, d store.Document, change func(*document) error) error {
	return s.write(ctx, verb+" "+d.Ref().String(), "", func(*session) error {
		if err := d.Validate(); err != nil {
			return err
		}
		held := s.base.documents[d.Ref()]
		if held == nil {
			held = &document{past: make(map[int]store.Document)}
		}
		return change(held)
	})
}

// taken reports whether another document has d's name.
func (b *base) taken(d store.Document) bool {
	for ref, held := range b.documents {
		if n := held.now; held.exists && d.Name != "" && n.Name == d.Name && n.Tenant == d.Tenant && n.Kind == d.Kind && ref != d.Ref() {
			return true
		}
	}
	return false
}

// Remove makes a document be gone.
func (s *Store) Remove(ctx context.Context, ref store.DocumentRef) error {
	return s.write(ctx, "remove "+ref.String(), "", func(*session) error {
		if held := s.base.documents[ref]; held == nil || !held.exists {
			return dormouse.ErrNotFound
		}
		delete(s.base.documents, ref)
		return nil
	})
}

// Document returns a document.
func (s *Store) Document(ctx context.Context, ref store.DocumentRef) (d store.Document, err error) {
	err = s.read(ctx, "look up "+ref.String(), "", func(*session) error {
		held := s.base.documents[ref]
		if held == nil || !held.exists {
			return dormouse.ErrNotFound
		}
		d = stored(held.now)
		return nil
	})
	return d, err
}

// DocumentVersion returns a version of a document.
func (s *Store) DocumentVersion(ctx context.Context, ref store.DocumentRef, version int) (store.Document, error) {
	found, err := s.DocumentVersions(ctx, ref, version+1, 1)
	if err == nil && (len(found) == 0 || found[0].Version != version) {
		err = wrap(dormouse.ErrNotFound, "look up a version of "+ref.String(), "")
	}
	if err != nil {
		return store.Document{}, err
	}
	return found[0], nil
}

// DocumentVersions lists the versions of a document, the highest first.
func (s *Store) DocumentVersions(ctx context.Context, ref store.DocumentRef, before, limit int) (found []store.Document, err error) {
	err = s.read(ctx, "list versions of "+ref.String(), "", func(*session) error {
		held := s.base.documents[ref]
		if held == nil || !held.exists {
			return dormouse.ErrNotFound
		}
		for _, d := range append(slices.Collect(maps.Values(held.past)), held.now) {
			if before == 0 || d.Version < before {
				found = append(found, stored(d))
			}
		}
		slices.SortFunc(found, func(a, b store.Document) int { return cmp.Compare(b.Version, a.Version) })
		found = found[:min(len(found), max(limit, 0))]
		return nil
	})
	return found, err
}

// Documents lists the documents of a tenant and kind, newest first.
func (s *Store) Documents(ctx context.Context, q store.DocumentQuery) (found []store.Document, err error) {
	newest := func(a, b store.Document) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.ID, a.ID)) }
	from, until := q.Window()
	err = s.read(ctx, "list documents of kind "+q.Kind, "", func(*session) error {
		last := s.base.documents[store.DocumentRef{Tenant: q.Tenant, Kind: q.Kind, ID: q.After}]
		if q.After != "" && (last == nil || !last.exists) {
			return dormouse.ErrNotFound
		}
		for held := range maps.Values(s.base.documents) {
			d := held.now
			if held.exists && d.Tenant == q.Tenant && d.Kind == q.Kind && (q.Name == "" || d.Name == q.Name) &&
				(q.Archived || d.Archived.IsZero()) && !d.Created.Before(from) && (until.IsZero() || !d.Created.After(until)) &&
				(q.After == "" || newest(last.now, d) < 0) {
				found = append(found, stored(d))
			}
		}
		slices.SortFunc(found, newest)
		found = found[:min(len(found), max(q.Limit, 0))]
		return nil
	})
	return found, err
}

// DocumentRefs lists every document.
func (s *Store) DocumentRefs(ctx context.Context, after store.DocumentRef, limit int) (refs []store.DocumentRef, err error) {
	err = s.read(ctx, "list every document", "", func(*session) error {
		for ref, held := range s.base.documents {
			if held.exists && ref.Compare(after) > 0 {
				refs = append(refs, ref)
			}
		}
		slices.SortFunc(refs, store.DocumentRef.Compare)
		refs = refs[:min(len(refs), max(limit, 0))]
		return nil
	})
	return refs, err
}
