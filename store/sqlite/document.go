package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Insert stores a document that is not there yet.
func (s *Store) Insert(ctx context.Context, d store.Document) error {
	return s.document(ctx, "insert", d.Ref(), d.Validate(), func(ctx context.Context, c *conn) error {
		n, err := c.exec(ctx, addDocument, documentArgs(d)...)
		if err == nil && n == 0 {
			err = dormouse.ErrConflict
		}
		return err
	})
}

// Replace puts a document in the place of the one with its revision.
func (s *Store) Replace(ctx context.Context, d store.Document, keep bool) error {
	return s.document(ctx, "replace", d.Ref(), d.Validate(), func(ctx context.Context, c *conn) error {
		return c.replace(ctx, d, keep)
	})
}

func (c *conn) replace(ctx context.Context, d store.Document, keep bool) error {
	var v [2]driver.Value
	found, err := c.queryRow(ctx, lookDocument, v[:], refArgs(d.Ref())...)
	if err != nil {
		return err
	}
	if !found {
		return dormouse.ErrNotFound
	}
	revision, err1 := integer(v[0])
	version, err2 := integer(v[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	taken, err := c.queryRow(ctx, lookName, v[:1], d.Tenant, d.Kind, d.Name, d.ID)
	if err != nil {
		return err
	}
	if taken || revision != int64(d.Revision) || version > int64(d.Version) {
		return dormouse.ErrConflict
	}
	if keep && version < int64(d.Version) {
		if _, err := c.exec(ctx, keepDocument, refArgs(d.Ref())...); err != nil {
			return err
		}
	}
	n, err := c.exec(ctx, putDocument, d.Name, int64(d.Version), micros(d.Updated), nullableMicros(d.Archived), d.Body, d.Tenant, d.Kind, d.ID, revision)
	if err == nil && n == 0 {
		err = errors.New("a document was neither replaced nor refused")
	}
	return err
}

// InsertVersion stores a version of a document that is not there yet.
func (s *Store) InsertVersion(ctx context.Context, d store.Document) error {
	return s.document(ctx, "carry", d.Ref(), d.Validate(), func(ctx context.Context, c *conn) error {
		var v [2]driver.Value
		found, err := c.queryRow(ctx, lookDocument, v[:], refArgs(d.Ref())...)
		if err != nil {
			return err
		}
		if found {
			return dormouse.ErrConflict
		}
		_, err = c.exec(ctx, carryDocument, documentArgs(d)...)
		return err
	})
}

// Remove makes a document be gone.
func (s *Store) Remove(ctx context.Context, ref store.DocumentRef) error {
	return s.document(ctx, "remove", ref, nil, func(ctx context.Context, c *conn) error {
		n, err := c.exec(ctx, removeDocument, refArgs(ref)...)
		if err == nil && n == 0 {
			err = dormouse.ErrNotFound
		}
		if err == nil {
			_, err = c.exec(ctx, removeVersions, refArgs(ref)...)
		}
		return err
	})
}

// document hands in a job that changes a document.
func (s *Store) document(ctx context.Context, verb string, ref store.DocumentRef, invalid error, do func(context.Context, *conn) error) error {
	err := invalid
	if err == nil {
		err = s.writer.Write(ctx, &job{do: do})
	}
	return wrap(err, verb, ref)
}

// refArgs is the arguments that say which document.
func refArgs(ref store.DocumentRef) []driver.Value {
	return []driver.Value{ref.Tenant, ref.Kind, ref.ID}
}

// documentArgs is the arguments that are all of a document but its revision.
func documentArgs(d store.Document) []driver.Value {
	return append(refArgs(d.Ref()), d.Name, int64(d.Version), micros(d.Created), micros(d.Updated), nullableMicros(d.Archived), d.Body)
}

const (
	documentColumns = `tenant, kind, id, name, version, revision, created, updated, archived, body`
	selectDocument  = `SELECT ` + documentColumns + ` FROM documents WHERE tenant = ?1 AND kind = ?2`
	// selectPast leaves out versions that arrive before their document.
	selectPast = `SELECT ` + documentColumns + ` FROM document_versions WHERE tenant = ?1 AND kind = ?2 AND id = ?3
		AND EXISTS (SELECT 1 FROM documents WHERE tenant = ?1 AND kind = ?2 AND id = ?3)`
)

func readDocument(rows *sql.Rows) (d store.Document, err error) {
	var created, updated int64
	var archived sql.NullInt64
	err = rows.Scan(&d.Tenant, &d.Kind, &d.ID, &d.Name, &d.Version, &d.Revision, &created, &updated, &archived, &d.Body)
	d.Created, d.Updated, d.Archived = fromMicros(created), fromMicros(updated), instantOrZero(archived)
	return d, err
}

// Document returns a document.
func (s *Store) Document(ctx context.Context, ref store.DocumentRef) (store.Document, error) {
	d, err := first(list(ctx, s, readDocument, selectDocument+` AND id = ?3`, ref.Tenant, ref.Kind, ref.ID))
	return d, wrap(err, "look up", ref)
}

// DocumentVersion returns a version of a document.
func (s *Store) DocumentVersion(ctx context.Context, ref store.DocumentRef, version int) (store.Document, error) {
	d, err := first(list(ctx, s, readDocument, selectDocument+` AND id = ?3 AND version = ?4 UNION ALL `+selectPast+` AND version = ?4`,
		ref.Tenant, ref.Kind, ref.ID, version))
	return d, wrap(err, "look up a version of", ref)
}

// DocumentVersions lists the versions of a document, the highest first.
func (s *Store) DocumentVersions(ctx context.Context, ref store.DocumentRef, before, limit int) ([]store.Document, error) {
	if before == 0 {
		before = math.MaxInt
	}
	found, err := list(ctx, s, readDocument, selectDocument+` AND id = ?3 AND version < ?4 UNION ALL `+selectPast+` AND version < ?4
		ORDER BY version DESC LIMIT ?5 + 0`, ref.Tenant, ref.Kind, ref.ID, before, max(limit, 0))
	if err == nil && len(found) == 0 {
		_, err = s.Document(ctx, ref)
	}
	return found, wrap(err, "list versions of", ref)
}

// Documents lists the documents of a tenant and kind, newest first.
func (s *Store) Documents(ctx context.Context, q store.DocumentQuery) ([]store.Document, error) {
	var where strings.Builder
	args := []any{q.Tenant, q.Kind}
	add := func(text string, values ...any) {
		where.WriteString(text)
		args = append(args, values...)
	}
	if q.Name != "" {
		add(` AND name = ? AND name <> ''`, q.Name) // the second half is the index's own
	}
	from, until := q.Window()
	if !from.IsZero() {
		add(` AND created >= ?`, micros(from))
	}
	if !until.IsZero() {
		add(` AND created <= ?`, micros(until))
	}
	if !q.Archived {
		add(` AND archived IS NULL`)
	}
	if q.After != "" {
		last, err := s.created(ctx, `SELECT created FROM documents WHERE tenant = ? AND kind = ? AND id = ?`, q.Tenant, q.Kind, q.After)
		if err != nil {
			return nil, wrap(err, "list documents after", q.After)
		}
		add(` AND (created, id) < (?, ?)`, last, q.After)
	}
	add(` ORDER BY created DESC, id DESC`+limitClause, max(q.Limit, 0))
	found, err := list(ctx, s, readDocument, selectDocument+where.String(), args...)
	return found, wrap(err, "list documents of kind", q.Kind)
}

// DocumentRefs lists every document.
func (s *Store) DocumentRefs(ctx context.Context, after store.DocumentRef, limit int) ([]store.DocumentRef, error) {
	refs, err := list(ctx, s, func(rows *sql.Rows) (ref store.DocumentRef, err error) {
		err = rows.Scan(&ref.Tenant, &ref.Kind, &ref.ID)
		return ref, err
	}, `SELECT tenant, kind, id FROM documents WHERE (tenant, kind, id) > (?, ?, ?) ORDER BY tenant, kind, id`+limitClause,
		after.Tenant, after.Kind, after.ID, max(limit, 0))
	return refs, wrap(err, "list every document after", after)
}
