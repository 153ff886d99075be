package store_test

import (
	"errors"
	"fmt"
	"strings"
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
	if missing, err := store.Missing(all, store.Schema{At: 1, Least: 1}); err != nil || len(missing) != 1 || missing[0].Version != 2 {
		t.Errorf("at step 1 there is missing %+v, %v", missing, err)
	}
	if missing, err := store.Missing(all, store.Schema{At: 2, Least: 2}); err != nil || len(missing) != 0 {
		t.Errorf("at step 2 there is missing %+v, %v", missing, err)
	}
	if missing, err := store.Missing(all, store.Schema{At: 3, Least: 2}); err != nil || len(missing) != 0 {
		t.Errorf("at a step 3 that only adds there is missing %+v, %v", missing, err)
	}
	_, err := store.Missing(all, store.Schema{At: 4, Least: 3})
	if !errors.Is(err, store.ErrNewer) {
		t.Errorf("at a step that needs another: %v", err)
	}
	for _, want := range []string{"at step 4", "knows step 3", "this one knows 2", "use the program that wrote it or a newer one"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal does not say %q: %v", want, err)
		}
	}
}

// A step that does not say which programs can go on after it would be taken beneath
// servers that cannot.
func TestEveryNewStepSaysWhichProgramsCanGoOn(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{}
	for n := 1; n <= 8; n++ {
		files[fmt.Sprintf("migrations/%04d_old.sql", n)] = &fstest.MapFile{Data: []byte("SELECT 1;")}
	}
	for text, want := range map[string]int{
		"-- opens from: 9\nSELECT 1;": 9,
		"SELECT 1;":                   0,
		"-- more\n-- opens from: 9\n": 0,
		"-- opens from: ten\n":        0,
		"-- opens from: 8\n":          0,
		"-- opens from: 10\n":         0,
	} {
		files["migrations/0009_new.sql"] = &fstest.MapFile{Data: []byte(text)}
		all, err := store.Steps(files)
		if want == 0 && err == nil || want != 0 && (err != nil || all[8].Least != want || !all[8].Breaking()) {
			t.Errorf("%q: steps = %+v, %v", text, all, err)
		}
	}
	files["migrations/0009_new.sql"] = &fstest.MapFile{Data: []byte("-- opens from: 9\n")}
	files["migrations/0010_adds.sql"] = &fstest.MapFile{Data: []byte("-- opens from: 9\n")}
	if all, err := store.Steps(files); err != nil || all[9].Breaking() || !all[7].Breaking() {
		t.Errorf("steps = %+v, %v", all, err)
	}
}
