package postgres

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// Insert stores a document that is not there yet.
func (s *Store) Insert(ctx context.Context, d store.Document) error {
	return s.document(ctx, "insert", d.Ref(), d.Validate(), func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `INSERT INTO documents (`+documentColumns+`)
			VALUES ($1, $2, $3, $4, $5, 1, $6, $7, $8, $9) ON CONFLICT DO NOTHING`, documentArgs(d)...)
		if err == nil && done.RowsAffected() == 0 {
			err = dormouse.ErrConflict
		}
		return err
	})
}

// Replace puts a document in the place of the one with its revision.
func (s *Store) Replace(ctx context.Context, d store.Document, keep bool) error {
	return s.document(ctx, "replace", d.Ref(), d.Validate(), func(ctx context.Context, tx pgx.Tx) error {
		return replace(ctx, tx, d, keep)
	})
}

// replace locks the row when it reads it, so that the second of two concurrent calls
// finds another revision.
func replace(ctx context.Context, tx pgx.Tx, d store.Document, keep bool) error {
	var revision, version int
	err := tx.QueryRow(ctx, `SELECT revision, version FROM documents WHERE `+byRef+` FOR UPDATE`, d.Tenant, d.Kind, d.ID).Scan(&revision, &version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return dormouse.ErrNotFound
	case err != nil:
		return err
	case revision != d.Revision || version > d.Version:
		return dormouse.ErrConflict
	}
	if keep && version < d.Version {
		if _, err := tx.Exec(ctx, `INSERT INTO document_versions (`+documentColumns+`)
			SELECT `+documentColumns+` FROM documents WHERE `+byRef+replaceVersion, d.Tenant, d.Kind, d.ID); err != nil {
			return err
		}
	}
	done, err := tx.Exec(ctx, `UPDATE documents SET name = $4, version = $5, revision = revision + 1, updated = $6, archived = $7, body = $8
		WHERE `+byRef+` AND revision = $9`, d.Tenant, d.Kind, d.ID, d.Name, d.Version, d.Updated, nullableTime(d.Archived), d.Body, revision)
	switch {
	case code(err) == uniqueViolation:
		return dormouse.ErrConflict
	case err == nil && done.RowsAffected() == 0:
		return errors.New("a document was neither replaced nor refused")
	}
	return err
}

// InsertVersion stores a version of a document that is not there yet.
func (s *Store) InsertVersion(ctx context.Context, d store.Document) error {
	return s.document(ctx, "carry", d.Ref(), d.Validate(), func(ctx context.Context, tx pgx.Tx) error {
		var there bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM documents WHERE `+byRef+`)`, d.Tenant, d.Kind, d.ID).Scan(&there)
		if err == nil && there {
			err = dormouse.ErrConflict
		}
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO document_versions (`+documentColumns+`) VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8, $9)`+replaceVersion, documentArgs(d)...)
		}
		return err
	})
}

// Remove makes a document be gone.
func (s *Store) Remove(ctx context.Context, ref store.DocumentRef) error {
	return s.document(ctx, "remove", ref, nil, func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `DELETE FROM documents WHERE `+byRef, ref.Tenant, ref.Kind, ref.ID)
		if err == nil && done.RowsAffected() == 0 {
			err = dormouse.ErrNotFound
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM document_versions WHERE `+byRef, ref.Tenant, ref.Kind, ref.ID)
		}
		return err
	})
}

// document changes a document in a transaction of its own. The writer knows which errors
// of a connection mean that nothing happened, and never repeats what may have happened.
func (s *Store) document(ctx context.Context, verb string, ref store.DocumentRef, invalid error, do func(context.Context, pgx.Tx) error) error {
	err := invalid
	if err == nil {
		err = s.writer(dormouse.SessionID(ref.ID)).Write(ctx, &job{alone: do})
	}
	return wrap(err, verb, ref)
}

const (
	documentColumns = `tenant, kind, id, name, version, revision, created, updated, archived, body`
	byRef           = `tenant = $1 AND kind = $2 AND id = $3`
	replaceVersion  = ` ON CONFLICT (tenant, kind, id, version) DO UPDATE SET name = excluded.name, revision = excluded.revision,
		created = excluded.created, updated = excluded.updated, archived = excluded.archived, body = excluded.body`
	selectDocument = `SELECT ` + documentColumns + ` FROM documents WHERE `
	// selectPast leaves out versions that arrive before their document.
	selectPast = `SELECT ` + documentColumns + ` FROM document_versions WHERE ` + byRef + ` AND EXISTS (SELECT 1 FROM documents WHERE ` + byRef + `)`
)

// documentArgs is the arguments that are all of a document but its revision.
func documentArgs(d store.Document) []any {
	return []any{d.Tenant, d.Kind, d.ID, d.Name, d.Version, d.Created, d.Updated, nullableTime(d.Archived), d.Body}
}

// nullableTime is a time, or NULL if it is the zero time.
func nullableTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func readDocument(row pgx.CollectableRow) (d store.Document, err error) {
	var archived *time.Time
	err = row.Scan(&d.Tenant, &d.Kind, &d.ID, &d.Name, &d.Version, &d.Revision, &d.Created, &d.Updated, &archived, &d.Body)
	d.Created, d.Updated, d.Archived = d.Created.UTC(), d.Updated.UTC(), timeOrZero(archived)
	return d, err
}

// Document returns a document.
func (s *Store) Document(ctx context.Context, ref store.DocumentRef) (store.Document, error) {
	d, err := first(list(ctx, s, readDocument, selectDocument+byRef, ref.Tenant, ref.Kind, ref.ID))
	return d, wrap(err, "look up", ref)
}

// DocumentVersion returns a version of a document.
func (s *Store) DocumentVersion(ctx context.Context, ref store.DocumentRef, version int) (store.Document, error) {
	d, err := first(list(ctx, s, readDocument, selectDocument+byRef+` AND version = $4 UNION ALL `+selectPast+` AND version = $4`,
		ref.Tenant, ref.Kind, ref.ID, version))
	return d, wrap(err, "look up a version of", ref)
}

// DocumentVersions lists the versions of a document, the highest first.
func (s *Store) DocumentVersions(ctx context.Context, ref store.DocumentRef, before, limit int) ([]store.Document, error) {
	if before == 0 {
		before = math.MaxInt
	}
	found, err := list(ctx, s, readDocument, selectDocument+byRef+` AND version < $4 UNION ALL `+selectPast+` AND version < $4
		ORDER BY version DESC LIMIT $5`, ref.Tenant, ref.Kind, ref.ID, before, max(limit, 0))
	if err == nil && len(found) == 0 {
		_, err = s.Document(ctx, ref)
	}
	return found, wrap(err, "list versions of", ref)
}

// Documents lists the documents of a tenant and kind, newest first.
func (s *Store) Documents(ctx context.Context, q store.DocumentQuery) ([]store.Document, error) {
	var w where
	w.add(`tenant = ? AND kind = ?`, q.Tenant, q.Kind)
	if q.Name != "" {
		w.add(` AND name = ? AND name <> ''`, q.Name) // the second half is the index's own
	}
	from, until := q.Window()
	if !from.IsZero() {
		w.add(` AND created >= ?`, from)
	}
	if !until.IsZero() {
		w.add(` AND created <= ?`, until)
	}
	if !q.Archived {
		w.add(` AND archived IS NULL`)
	}
	if q.After != "" {
		last, err := s.created(ctx, `SELECT created FROM documents WHERE `+byRef, q.Tenant, q.Kind, q.After)
		if err != nil {
			return nil, wrap(err, "list documents after", q.After)
		}
		w.add(` AND (created, id) < (?, ?)`, last, q.After)
	}
	w.add(` ORDER BY created DESC, id DESC LIMIT ?`, max(q.Limit, 0))
	found, err := list(ctx, s, readDocument, selectDocument+w.text, w.args...)
	return found, wrap(err, "list documents of kind", q.Kind)
}

// DocumentRefs lists every document.
func (s *Store) DocumentRefs(ctx context.Context, after store.DocumentRef, limit int) ([]store.DocumentRef, error) {
	refs, err := list(ctx, s, pgx.RowToStructByPos[store.DocumentRef],
		`SELECT tenant, kind, id FROM documents WHERE (tenant, kind, id) > ($1, $2, $3) ORDER BY tenant, kind, id LIMIT $4`,
		after.Tenant, after.Kind, after.ID, max(limit, 0))
	return refs, wrap(err, "list every document after", after)
}
