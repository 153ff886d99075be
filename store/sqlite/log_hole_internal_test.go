package sqlite

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
)

// Two power cuts may each tear a transaction of the same log, if it could not be emptied in
// between because the disk was full. No commit is lost with that.
func TestALogThatTwoPowerCutsHaveTornIsNoHole(t *testing.T) {
	path := filepath.Join(t.TempDir(), file)
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	open := func() func(texts ...string) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(0)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(1)
		return func(texts ...string) {
			t.Helper()
			for _, text := range texts {
				if _, err := db.ExecContext(t.Context(), text); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
			}
		}
	}
	// cut leaves a database and a log of which the frame at a place is torn.
	cut := func(at int) {
		t.Helper()
		database, log := read(path), read(path+"-wal")
		clear(log[at+100 : at+4096])
		path = filepath.Join(t.TempDir(), file)
		for name, b := range map[string][]byte{path: database, path + "-wal": log} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := refuseHole(path); err != nil {
			t.Fatal(err)
		}
	}
	run := open()
	run(`CREATE TABLE a (t TEXT)`, `INSERT INTO a VALUES ('')`)
	end := len(read(path + "-wal"))
	run(`WITH n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n WHERE i < 20) INSERT INTO a SELECT hex(randomblob(1800)) FROM n`)
	cut(end)
	if err := resync(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	run = open() // the log is not emptied
	run(`UPDATE a SET t = hex(randomblob(1800))`)
	cut(end)
}
