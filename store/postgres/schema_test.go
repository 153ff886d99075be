package postgres_test

import (
	"testing"

	"github.com/dormouse-run/dormouse/store/postgres"
)

func TestSchemaIsReadWithoutChangingAnything(t *testing.T) {
	const name = "unused"
	if err := server.CreateDB(t.Context(), name, ""); err != nil {
		t.Fatal(err)
	}
	_, newest, err := postgres.Schema(t.Context(), server.DSN(name))
	if err != nil || newest < 1 {
		t.Fatalf("newest step %d, %v", newest, err)
	}
	for _, c := range []struct {
		db   string
		want int
	}{{name, 0}, {name, 0}, {template, newest}} {
		if at, _, err := postgres.Schema(t.Context(), server.DSN(c.db)); at != c.want || err != nil {
			t.Errorf("%s: step %d, want %d, %v", c.db, at, c.want, err)
		}
	}
	if _, _, err := postgres.Schema(t.Context(), server.DSN("nowhere")); err == nil {
		t.Error("a database that is not there has a schema")
	}
}
