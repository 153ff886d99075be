package rig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // to look behind the server's back
	_ "modernc.org/sqlite"             // likewise

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// database opens the database of the server.
func (s *Server) database() (*sql.DB, error) {
	if s.Store.Shared() {
		return sql.Open("pgx", s.Store.URL)
	}
	return sql.Open("sqlite", "file:"+filepath.Join(s.Data, "dormouse.db")+"?mode=ro&_pragma=busy_timeout(5000)")
}

// query reads rows of two columns.
func query[A, B any](ctx context.Context, s *Server, text string, each func(A, B)) (err error) {
	db, err := s.database()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var a A
		var b B
		if err := rows.Scan(&a, &b); err != nil {
			return err
		}
		each(a, b)
	}
	return rows.Err()
}

// Owners says by name which server each session of a shared store is on.
func (s *Server) Owners(ctx context.Context) (map[dormouse.SessionID]string, error) {
	owners := make(map[dormouse.SessionID]string)
	err := query(ctx, s, "SELECT s.id, v.name FROM sessions s JOIN servers v ON v.incarnation = s.server",
		func(id dormouse.SessionID, name string) { owners[id] = name })
	return owners, err
}

// abandoned waits until the lease of the last server is over: one that was killed
// could not give it up.
func (s *Server) abandoned(ctx context.Context) error {
	for s.Store.Shared() {
		var left int
		err := query(ctx, s, "SELECT count(*), 0 FROM servers WHERE lease_until > clock_timestamp()", func(n, _ int) { left = n })
		if err != nil || left == 0 {
			return err
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d servers still have a lease: %w", left, err)
		}
	}
	return nil
}

// Orphans counts the rows of deleted sessions.
func (s *Server) Orphans(ctx context.Context) (int, error) {
	var counts []string
	for _, table := range []string{"events", "prompts", "ops", "chunks", "states", "labels"} {
		counts = append(counts, fmt.Sprintf("SELECT '%s', count(*) FROM %[1]s WHERE session NOT IN (SELECT key FROM sessions)", table))
	}
	orphans := 0
	err := query(ctx, s, strings.Join(counts, " UNION ALL "), func(_ string, n int) { orphans += n })
	return orphans, err
}
