package sqlite

import (
	"context"
	"database/sql/driver"
	"maps"
	"slices"
	"strings"

	lib "modernc.org/sqlite/lib"

	"github.com/dormouse-run/dormouse/store"
)

// Documents cannot be derived from anything else. Those that are lost are named, as far
// as an index or an older version tells.

// documentIndexes have every document.
var documentIndexes = []string{"sqlite_autoindex_documents_1", "documents_by_age"}

const versionIndex = "sqlite_autoindex_document_versions_1"

// pasts are the versions that documents had before, by document.
type pasts map[store.DocumentRef][]int64

// loseDocuments notes the documents that are not there, or not as they were last.
func (s *Salvage) loseDocuments(ctx context.Context) error {
	if had, err := s.columns(ctx, "documents"); err != nil || len(had) == 0 {
		return err // of a step before there were any
	}
	newest, err := s.pasts(ctx, "documents")
	if err != nil {
		return err
	}
	past, err := s.pasts(ctx, "document_versions")
	if err != nil {
		return err
	}
	gone, err := s.indexedDocuments(ctx)
	if err != nil {
		return err
	}
	for ref := range past {
		gone[ref] = true
	}
	maps.DeleteFunc(gone, func(ref store.DocumentRef, _ bool) bool { return newest[ref] != nil })
	for _, ref := range inOrder(gone) {
		if left := past[ref]; left != nil {
			s.lose("documents: %s of tenant %q is not there; its past up to version %d is", ref, ref.Tenant, slices.Max(left))
		} else {
			s.lose("documents: %s of tenant %q", ref, ref.Tenant)
		}
	}
	for _, ref := range inOrder(newest) {
		if at, left := newest[ref][0], past[ref]; left != nil && at <= slices.Max(left) {
			s.lose("documents: %s of tenant %q is as it was in version %d, and had a later one", ref, ref.Tenant, at)
		}
	}
	lost, err := s.lostVersions(ctx, newest, past)
	if err != nil {
		return err
	}
	return s.doubtDocuments(ctx, len(gone)+lost > 0, newest, past)
}

// pasts are the versions in a table of the new database.
func (s *Salvage) pasts(ctx context.Context, table string) (pasts, error) {
	found := make(pasts)
	rows, err := s.pool.QueryContext(ctx, `SELECT tenant, kind, id, version FROM `+table) //nolint:gosec // the name of a table of ours
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var ref store.DocumentRef
		var version int64
		if err := rows.Scan(&ref.Tenant, &ref.Kind, &ref.ID, &version); err != nil {
			return nil, err
		}
		found[ref] = append(found[ref], version)
	}
	return found, rows.Err()
}

// indexedDocuments are the documents that an index has.
func (s *Salvage) indexedDocuments(ctx context.Context) (map[store.DocumentRef]bool, error) {
	found := make(map[store.DocumentRef]bool)
	for _, index := range documentIndexes {
		_, err := s.fromBothEnds(ctx, "documents INDEXED BY "+index, []string{"tenant", "kind", "id"}, "tenant", func(row []driver.Value) error {
			if ref, ok := refOf(row); ok {
				found[ref] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// lostVersions notes the versions of which only an index tells, and returns how many.
func (s *Salvage) lostVersions(ctx context.Context, newest, past pasts) (int, error) {
	lost := make(pasts)
	_, err := s.fromBothEnds(ctx, "document_versions INDEXED BY "+versionIndex, []string{"tenant", "kind", "id", "version"}, "tenant", func(row []driver.Value) error {
		ref, ok := refOf(row)
		version, number := row[3].(int64)
		if ok && number && !slices.Contains(past[ref], version) && !slices.Contains(lost[ref], version) {
			lost[ref] = append(lost[ref], version)
		}
		return nil
	})
	for _, ref := range inOrder(lost) {
		slices.Sort(lost[ref])
		s.lose("document_versions: %s of tenant %q, versions %d", ref, ref.Tenant, lost[ref])
		if at := newest[ref]; at != nil && at[0] <= slices.Max(lost[ref]) && (past[ref] == nil || at[0] > slices.Max(past[ref])) {
			s.lose("documents: %s of tenant %q is as it was in version %d, and had a later one", ref, ref.Tenant, at[0])
		}
	}
	return len(lost), err
}

// doubtDocuments returns which kinds of documents may be incomplete if some of their
// pages are corrupt: an old page has documents as they were, and does not say which came
// after.
func (s *Salvage) doubtDocuments(ctx context.Context, doubt bool, newest, past pasts) error {
	for _, table := range []string{"documents", "document_versions"} {
		err := s.read(ctx, 1, func(row []driver.Value) error {
			found, _ := row[0].(string)
			doubt = doubt || concerns(found)
			return nil
		}, "PRAGMA integrity_check("+table+")")
		if err != nil && code(err) != lib.SQLITE_CORRUPT {
			return err
		}
		doubt = doubt || err != nil
	}
	if !doubt {
		return nil
	}
	kinds := map[string]bool{"agent": true, "environment": true} // though none of them may be left
	for _, of := range []pasts{newest, past} {
		for ref := range of {
			kinds[ref.Kind] = true
		}
	}
	s.lose("documents: some of any kind (%s) may be missing or as they were before, and not be named here",
		strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	return nil
}

func refOf(row []driver.Value) (ref store.DocumentRef, ok bool) {
	tenant, is1 := row[0].(string)
	kind, is2 := row[1].(string)
	id, is3 := row[2].(string)
	return store.DocumentRef{Tenant: tenant, Kind: kind, ID: id}, is1 && is2 && is3
}

// inOrder are the documents that a map has.
func inOrder[V any](of map[store.DocumentRef]V) []store.DocumentRef {
	return slices.SortedFunc(maps.Keys(of), store.DocumentRef.Compare)
}
