package e2e

import (
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// listed are the titles that a list holds.
func (w *world) listed(query url.Values) []string {
	w.t.Helper()
	var page struct {
		Sessions []rig.Shown `json:"sessions"`
	}
	must(w.t, w.Get(w.ctx, "/api/sessions?"+query.Encode(), &page))
	titles := []string{}
	for _, s := range page.Sessions {
		titles = append(titles, s.Title)
	}
	slices.Sort(titles)
	return titles
}

func TestSessionsAreFoundByWhatPeopleSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	say := func(o options) *rig.Session {
		o["warm"] = false
		title, _ := o["title"].(string)
		s, err := w.Create(w.ctx, title, o, "")
		must(t, err)
		return s
	}
	build := say(options{"title": "Fix the Build", "tags": []string{"ci", "red"}, "metadata": map[string]string{"repo": "dormouse"}})
	docs := say(options{"title": "write docs", "tags": []string{"red"}})
	say(options{"title": "100% done_"})
	_, err := docs.Once(w.ctx, http.MethodPatch, docs.Path(""), options{"title": "write the docs", "metadata": map[string]any{"repo": "other", "gone": "x"}}, nil)
	must(t, err)
	_, err = docs.Once(w.ctx, http.MethodPatch, docs.Path(""), options{"metadata": map[string]any{"gone": nil}}, nil)
	must(t, err)

	w.kill(func() { // and so it stays
		if out := w.cli("store", "rebuild", "--check"); out != "rebuild: sessions=3 changed=0\n" {
			t.Errorf("rebuild says %q", out)
		}
	})
	for _, c := range []struct {
		query url.Values
		want  []string
	}{
		{url.Values{}, []string{"100% done_", "Fix the Build", "write the docs"}},
		{url.Values{"text": {"the"}}, []string{"Fix the Build", "write the docs"}},
		{url.Values{"text": {"fix THE"}}, []string{"Fix the Build"}},
		{url.Values{"text": {"%"}}, []string{"100% done_"}},
		{url.Values{"text": {"_"}}, []string{"100% done_"}},
		{url.Values{"tag": {"red"}}, []string{"Fix the Build", "write the docs"}},
		{url.Values{"tag": {"red", "ci"}}, []string{"Fix the Build"}},
		{url.Values{"metadata.repo": {"other"}}, []string{"write the docs"}},
		{url.Values{"metadata.gone": {"x"}}, []string{}},
		{url.Values{"text": {"nothing of the kind"}}, []string{}},
	} {
		if got := w.listed(c.query); !slices.Equal(got, c.want) {
			t.Errorf("%v lists %q, want %q", c.query, got, c.want)
		}
	}

	must(t, build.Command(w.ctx, "archive", nil))
	w.kill(nil)
	if got := w.listed(url.Values{"tag": {"ci"}}); len(got) != 0 {
		t.Errorf("listed is %q, which was put away", got)
	}
	if got := w.listed(url.Values{"tag": {"ci"}, "archived": {"true"}}); len(got) != 1 {
		t.Errorf("listed is %q, want what was put away", got)
	}
	if log, err := build.Events(w.ctx); err != nil || len(only(log, dormouse.SessionArchived)) != 1 {
		t.Errorf("its log is %s, %v", types(log), err)
	}
	_, err = build.Once(w.ctx, http.MethodPost, build.Path("/prompts"), options{"content": "hello"}, nil)
	refused(t, err, http.StatusConflict, "terminated")
}

// rows counts the rows of each table.
func (w *world) rows() map[string]int {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.Data, "dormouse.db")+"?mode=ro")
	must(w.t, err)
	defer db.Close()
	tables, err := db.QueryContext(w.ctx, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
	must(w.t, err)
	defer tables.Close()
	rows := make(map[string]int)
	for tables.Next() {
		var name string
		must(w.t, tables.Scan(&name))
		var n int
		must(w.t, db.QueryRowContext(w.ctx, fmt.Sprintf("SELECT count(*) FROM %q", name)).Scan(&n))
		rows[name] = n
	}
	must(w.t, tables.Err())
	return rows
}

// doomed is the only session of a server, with files and a command at work.
type doomed struct {
	*rig.Session
	before map[string]int // the rows there were before it
}

func (w *world) doomed() doomed {
	w.t.Helper()
	before := w.rows()
	never, _ := w.gate()
	first := rig.Script("doomed", rig.Bash("echo secret > notes.txt; "+w.witness.Mark("doomed", "begin")+"; "+never))
	s, err := w.Create(w.ctx, "doomed", nil, first)
	must(w.t, err)
	w.until("it works", func() bool {
		all, err := w.witness.Effects()
		must(w.t, err)
		return len(all) == 1
	})
	if maps.Equal(before, w.rows()) || len(w.Left(s.ID)) == 0 {
		w.t.Fatalf("it has added no rows to %v, or no files: %v", before, w.Left(s.ID))
	}
	return doomed{s, before}
}

// forgotten checks that nothing is left of a session.
func (w *world) forgotten(s doomed) {
	w.t.Helper()
	if _, err := s.Show(w.ctx); !rig.Missing(err) {
		w.t.Errorf("it is still shown: %v", err)
	}
	if got := w.listed(url.Values{"archived": {"true"}}); len(got) != 0 {
		w.t.Errorf("it is still listed: %q", got)
	}
	w.until("its rows are gone", func() bool { return maps.Equal(s.before, w.rows()) })
	if left := w.Left(s.ID); len(left) > 0 {
		w.t.Errorf("left are %v", left)
	}
	if runners := w.Runners(); len(runners) > 0 {
		w.t.Errorf("runners %v are left", runners)
	}
}

func TestDeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.doomed()
	f := w.follow(string(s.ID), 0)
	w.until("somebody follows", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.events) > 0
	})
	status, err := s.Once(w.ctx, http.MethodDelete, s.Path(""), nil, nil)
	must(t, err)
	if status != http.StatusNoContent {
		t.Errorf("the answer was %d", status)
	}
	w.forgotten(s)
	_, err = s.Once(w.ctx, http.MethodDelete, s.Path(""), nil, nil)
	refused(t, err, http.StatusNotFound, "not_found")
	if seen := f.all(t); seen[len(seen)-1].Type != dormouse.SessionStatusTerminated && seen[len(seen)-1].Type != dormouse.SessionDeleted {
		t.Errorf("the follower ended with %s", seen[len(seen)-1].Type)
	}
}

func TestDeleteIsFinishedHoweverOftenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		t.Run(pause.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.doomed()
			deleted := make(chan error, 1)
			go func() { deleted <- s.Delete(w.ctx) }()
			for n := range 3 {
				must(t, sleep.For(w.ctx, time.Duration(n+1)*pause))
				w.kill(nil)
			}
			must(t, <-deleted)
			w.forgotten(s)
			w.kill(nil) // and nothing of it comes back
			w.forgotten(s)
		})
	}
}

// By hand, as a person does it.
func TestDeleteByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.doomed()
	if out := w.cli("session", "delete", string(s.ID), "--yes"); !strings.Contains(out, "deleted") {
		t.Errorf("it said %q", out)
	}
	w.forgotten(s)
	if _, err := os.Stat(filepath.Join(w.Data, "sandbox")); err != nil {
		t.Errorf("more is gone than the session: %v", err)
	}
}
