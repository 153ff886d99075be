package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/store/transfer"
	"github.com/dormouse-run/dormouse/store/transfer/transfertest"
)

func TestADeploymentIsTheSameInAnotherPlace(t *testing.T) {
	old, file, data := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	out, _ := storeCommand(t, 0, old, "export", file)
	for _, want := range []string{"exported 6 sessions, ", "4 blobs and 4 documents to " + file, "sha256:", filepath.Join(old, "sandbox")} {
		if !strings.Contains(out, want) {
			t.Errorf("export does not say %q: %s", want, out)
		}
	}
	out, _ = storeCommand(t, 0, data, "import", file)
	for _, want := range []string{"verified 6 sessions", filepath.Join(data, "sandbox")} {
		if !strings.Contains(out, want) {
			t.Errorf("import does not say %q: %s", want, out)
		}
	}
	if out, _ := storeCommand(t, 0, data, "rebuild", "--check"); out != "rebuild: sessions=6 changed=0\n" {
		t.Errorf("after the import: %s", out)
	}

	was, is := transfertest.Open(t, old), transfertest.Open(t, data)
	before, after := transfertest.Contents(t, was), transfertest.Contents(t, is)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("carried over (-before +after):\n%s", diff)
	}
	if got := after[transfertest.Working].Chunks; len(got) != len(transfertest.Seen) || after[transfertest.Working].Epoch != 3 {
		t.Errorf("of the open model call: %v under epoch %d", got, after[transfertest.Working].Epoch)
	}
	if n := after[transfertest.Long].Rows.Session.Seq; n <= transfer.PageEvents {
		t.Errorf("the long session has only %d events, which is no page", n)
	}
	for id := range after {
		log := transfertest.Log(t, is, id)
		if diff := cmp.Diff(transfertest.Log(t, was, id), log); diff != "" {
			t.Errorf("log of %s (-before +after):\n%s", id, diff)
		}
		for _, e := range log {
			if e.Blob == "" {
				continue
			}
			b, err := is.Blobs.Get(t.Context(), e.Blob)
			if err != nil || len(b) < 64<<10 {
				t.Errorf("%s: payload of event %d: %d bytes, %v", id, e.Seq, len(b), err)
			}
		}
	}
}

func TestTheCopyExportsToTheSameArchive(t *testing.T) {
	old, dir, data := transfertest.OldData(t), t.TempDir(), t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	storeCommand(t, 0, old, "export", one)
	storeCommand(t, 0, data, "import", one)
	storeCommand(t, 0, data, "export", two)
	a, err1 := os.ReadFile(one)
	b, err2 := os.ReadFile(two)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("the archives differ: %d and %d bytes", len(a), len(b))
	}
}

func TestTheReportsAreAlsoJSON(t *testing.T) {
	old, file, data := transfertest.OldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	out, _ := storeCommand(t, 0, old, "export", "--json", file)
	var e exported
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if e.Sessions != 6 || e.Events < 700 || e.Chunks != 3 || e.Blobs != 4 || e.Lost != 0 || e.Bytes != info.Size() || e.Digest.Validate() != nil {
		t.Errorf("exported %+v, %d bytes", e, info.Size())
	}
	for _, c := range []struct {
		args            []string
		added, verified uint64
	}{
		{[]string{"--check"}, 0, 0},
		{nil, e.Events, 6},
		{nil, 0, 6}, // all of it is there
	} {
		out, _ := storeCommand(t, 0, data, append([]string{"import", "--json", file}, c.args...)...)
		var i imported
		if err := json.Unmarshal([]byte(out), &i); err != nil {
			t.Fatal(err)
		}
		if i.Total != e.Total || i.Digest != e.Digest || i.Added != c.added || i.Verified != c.verified {
			t.Errorf("%v: imported %+v, want %d events added and %d sessions verified", c.args, i, c.added, c.verified)
		}
	}
}

func TestAServerThatRunsKeepsItsStoreToItself(t *testing.T) {
	data := t.TempDir()
	s := startServer(t, data)
	for _, args := range [][]string{{"export", filepath.Join(t.TempDir(), "archive")}, {"migrate"}, {"rebuild"}} {
		if _, errs := storeCommand(t, exitError, data, args...); !strings.Contains(errs, "another server uses it: stop that one") {
			t.Errorf("%v: said %s", args, errs)
		}
	}
	storeCommand(t, 0, data, "migrate", "--check")
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsMadeOfADatabaseThatIsNotThere(t *testing.T) {
	data := filepath.Join(t.TempDir(), "mistyped")
	for _, args := range [][]string{{"export", filepath.Join(t.TempDir(), "archive")}, {"rebuild"}, {"rebuild", "--check"}} {
		if _, errs := storeCommand(t, exitError, data, args...); !strings.Contains(errs, "there is no database in "+data) {
			t.Errorf("%v: said %s", args, errs)
		}
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
}

func TestMigrateSaysFromWhereToWhere(t *testing.T) {
	data := t.TempDir()
	out, _ := storeCommand(t, exitNeedsAttention, data, "migrate", "--check", "--json")
	var m migrated
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.From != 0 || m.To < 1 || !m.Needed {
		t.Errorf("%+v, %v", m, err)
	}
	for _, c := range []struct{ args, want string }{
		{"--check", fmt.Sprintf("schema is at step 0 and this program needs step %d\n", m.To)},
		{"", fmt.Sprintf("schema was at step 0 and is at step %d\n", m.To)},
		{"", fmt.Sprintf("schema is at step %d, the newest\n", m.To)},
		{"--check", fmt.Sprintf("schema is at step %d, the newest\n", m.To)},
	} {
		code := 0
		if strings.Contains(c.want, "needs") {
			code = exitNeedsAttention
		}
		if out, _ := storeCommand(t, code, data, append([]string{"migrate"}, strings.Fields(c.args)...)...); out != c.want {
			t.Errorf("migrate %s: %q, want %q", c.args, out, c.want)
		}
	}
}

func TestProgressIsPrintedNowAndThen(t *testing.T) {
	var b safeBuffer
	p := newProgress(&b)
	p.Update("at once")
	p.last = p.last.Add(-time.Minute)
	p.Update("after %s", "a while")
	p.Update("at once again")
	p.done()
	if got := b.String(); got != "after a while\n" {
		t.Errorf("told %q", got)
	}
}
