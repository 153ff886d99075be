// Package transfer moves the contents of stores: out to an archive, in from one, and into
// a rebuilt store from the logs alone. It works on stores that no server uses; Hold keeps
// servers from a shared one meanwhile.
//
// A session that an import has begun is not run by a server and not listed before all of
// it is there. An import that was interrupted completes when it is run again.
package transfer

import (
	"context"
	"fmt"
	"slices"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
)

// Deployment is all that servers keep and an archive holds.
type Deployment struct {
	Store store.Store
	Blobs blob.Store
}

// Progress is told how far a transfer is.
type Progress interface {
	// Update says what it is at. It is called for every page.
	Update(format string, args ...any)
	// Note says something that people have to know afterwards, too.
	Note(format string, args ...any)
}

// EachSession calls f with every session, oldest first.
func EachSession(ctx context.Context, s store.Rebuilder, f func(dormouse.SessionID) error) error {
	const page = 500
	var after dormouse.SessionID
	for {
		ids, err := s.All(ctx, after, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := f(id); err != nil {
				return err
			}
		}
		if len(ids) < page {
			return nil
		}
		after = ids[len(ids)-1]
	}
}

// EachDocument calls f with every document, in the order of an archive.
func EachDocument(ctx context.Context, s store.Documents, f func(store.DocumentRef) error) error {
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

// EachVersion calls f with every version of a document, the oldest first.
func EachVersion(ctx context.Context, s store.Documents, ref store.DocumentRef, f func(archive.Version) error) error {
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

// LogDigest reads a session's log and takes its digest.
func LogDigest(ctx context.Context, s store.Log, id dormouse.SessionID) (dormouse.Digest, error) {
	sum := archive.NewSum()
	for seq := uint64(0); ; {
		events, err := s.Read(ctx, id, seq, PageEvents)
		if err != nil || len(events) == 0 {
			return sum.Digest(), err
		}
		sum.Add(events...)
		seq = events[len(events)-1].Seq
	}
}
