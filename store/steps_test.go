package store_test

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/dormouse-run/dormouse/store"
)

func TestStepsAreInOrderAndHaveNoGap(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	all, err := store.Steps(fstest.MapFS{"migrations/0002_more.sql": file("b"), "migrations/0001_first.sql": file("a")})
	if err != nil || len(all) != 2 || all[0] != (store.Step{Version: 1, Name: "first", Text: "a"}) || all[1].Name != "more" {
		t.Errorf("steps = %+v, %v", all, err)
	}
	for name, files := range map[string]fstest.MapFS{
		"a gap":       {"migrations/0001_first.sql": file("a"), "migrations/0003_third.sql": file("c")},
		"one twice":   {"migrations/0001_first.sql": file("a"), "migrations/0001_other.sql": file("b")},
		"no number":   {"migrations/first.sql": file("a")},
		"not a thing": {},
	} {
		if all, err := store.Steps(files); err == nil {
			t.Errorf("%s: steps = %+v", name, all)
		}
	}
}

func TestASchemaOfANewerProgramIsRefused(t *testing.T) {
	t.Parallel()
	all := []store.Step{{Version: 1}, {Version: 2}}
	if missing, err := store.Missing(all, 1); err != nil || len(missing) != 1 || missing[0].Version != 2 {
		t.Errorf("at step 1 there is missing %+v, %v", missing, err)
	}
	if missing, err := store.Missing(all, 2); err != nil || len(missing) != 0 {
		t.Errorf("at step 2 there is missing %+v, %v", missing, err)
	}
	if _, err := store.Missing(all, 3); !errors.Is(err, store.ErrNewer) {
		t.Errorf("at step 3: %v", err)
	}
}
