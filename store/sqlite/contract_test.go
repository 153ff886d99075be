package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/internal/contract"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// An older server may use the database beside this one, and both must find their columns.
func TestTheDatabaseHasTheColumnsOfTheVersionBefore(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "dormouse.db")+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(t.Context(), `
		SELECT 'column ' || m.name || '.' || c.name || ' ' || c.type || iif(c."notnull", ' not null', '') ||
			iif(c.dflt_value IS NULL, '', ' default ' || c.dflt_value) || iif(c.pk > 0, ' key ' || c.pk, '')
		FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c WHERE m.type = 'table'
		UNION ALL SELECT type || ' ' || name || ' on ' || tbl_name FROM sqlite_master WHERE type <> 'table'
		UNION ALL SELECT 'step ' || version || ' ' || name FROM schema_steps`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	contract.File{Path: "testdata/contract/columns.txt"}.Check(t, lines)
}
