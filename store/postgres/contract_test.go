package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse/internal/contract"
)

// Servers of two versions use the database at once during an upgrade, and both must find
// their columns.
func TestTheDatabaseHasTheColumnsOfTheVersionBefore(t *testing.T) {
	c, err := pgx.Connect(t.Context(), server.DSN(template))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
	rows, err := c.Query(t.Context(), `
		SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type ||
			CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END || COALESCE(' default ' || column_default, '')
		FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT 'index ' || replace(indexdef, 'public.', '') FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT 'step ' || version || ' ' || name FROM schema_steps`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	contract.File{Path: "testdata/contract/columns.txt"}.Check(t, lines)
}
