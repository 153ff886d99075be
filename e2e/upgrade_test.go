//go:build linux

package e2e

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/rig"
)

// past is what the version before logs had versions left behind: testdata/upgrade, whose
// README says how it was made.
type past struct {
	t    *testing.T
	kind string // sqlite or postgres
	// Sessions are what that version told of each session, by id.
	sessions map[dormouse.SessionID]told
}

type told struct {
	Shown struct {
		Title  string             `json:"title"`
		Parent dormouse.SessionID `json:"parent"`
	} `json:"shown"`
	Events struct {
		Events []map[string]any `json:"events"`
	} `json:"events"`
}

func pastOf(t *testing.T, kind string) *past {
	t.Helper()
	p := &past{t: t, kind: kind}
	f, err := os.Open(p.file("before.json.gz"))
	must(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	must(t, err)
	must(t, json.NewDecoder(z).Decode(&p.sessions))
	return p
}

func (p *past) file(name string) string { return filepath.Join("testdata", "upgrade", p.kind, name) }

// unpack lays the data directory out as it was left.
func (p *past) unpack(s *rig.Server) {
	p.t.Helper()
	must(p.t, os.MkdirAll(s.Data, 0o700))
	p.run("tar", "-C", s.Data, "--no-same-owner", "-xzf", p.file("data.tar.gz"))
}

// load fills an empty database with what was left in one.
func (p *past) load(s *rig.Server) {
	p.t.Helper()
	pg, name := sharedDatabase(p.t)
	s.Store = rig.Store{URL: pg.URL(name), Lease: lease}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
	must(p.t, err)
	found = append([]string{"psql"}, found...)
	p.run("sh", "-c", `gzip -dc "$1" | "$2" -q -v ON_ERROR_STOP=1 -d "$3"`, "sh", p.file("dump.sql.gz"), found[len(found)-1], s.Store.URL)
}

// take makes a data directory with what is in the archive, and what is not in it copied.
func (p *past) take(s *rig.Server) {
	p.t.Helper()
	p.unpack(s)
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(s.Data, "dormouse.db"+end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.t.Fatal(err)
		}
	}
	p.run(s.Server, "store", "import", "--data", s.Data, p.file("archive.dormouse"))
}

func (p *past) run(name string, args ...string) {
	p.t.Helper()
	if out, err := exec.CommandContext(p.t.Context(), name, args...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// What the version before left is opened by this one, is what it was, and goes on: the
// wake-up that came due meanwhile rings, files and snapshots are there, the child answers.
func TestWhatTheVersionBeforeWroteGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind string
		open func(*past, *rig.Server)
	}{
		"SQLite":     {"sqlite", (*past).unpack},
		"PostgreSQL": {"postgres", func(p *past, s *rig.Server) { p.unpack(s); p.load(s) }},
		"archive":    {"sqlite", (*past).take},
	} {
		t.Run(name, func(t *testing.T) { // one by one: copies of a directory take each other's sandboxes for theirs
			p := pastOf(t, c.kind)
			w := newWorld(t, func(s *rig.Server) {
				s.Store = rig.Store{}
				c.open(p, s)
			})
			for id, was := range p.sessions {
				a := &actor{w: w, Session: &rig.Session{Client: w.Client, ID: id}}
				a.Follow(w.ctx, true)
				t.Cleanup(a.Follower.Close)
				if a.tag = "upgrade"; was.Shown.Parent != "" {
					a.tag = "upgradechild"
				}
				a.goesOn(was)
			}
			must(t, w.Halt(w.ctx))
			if wrong, err := w.Check(w.ctx); err != nil || wrong != "" {
				t.Errorf("after it went on: %s, %v", wrong, err)
			}
			w.Resume()
		})
	}
}

// goesOn compares a session with what was told of it, and has it go on.
func (a *actor) goesOn(was told) {
	t, w := a.w.t, a.w
	t.Helper()
	shown := a.show()
	if shown.Title != was.Shown.Title {
		t.Errorf("%s is called %q, and was %q", a.ID, shown.Title, was.Shown.Title)
	}
	if was.Shown.Parent == "" {
		a.says("it rang")
		a.send("after", a.script(rig.Bash("cat file.txt"), rig.Say("it goes on")))
		a.says("it goes on")
		const files = "written by the agent\nwritten by a person\n"
		results := only(a.log(), dormouse.AgentToolResult)
		if last := results[len(results)-1]; !strings.Contains(string(last.Payload), strings.ReplaceAll(files, "\n", `\n`)) {
			t.Errorf("the files are %s", last.Payload)
		}
		var points struct {
			Snapshots []struct {
				Label string `json:"label"`
			} `json:"snapshots"`
		}
		must(t, a.Get(w.ctx, a.Path("/snapshots"), &points))
		found := false
		for _, p := range points.Snapshots {
			found = found || p.Label == "as it was"
		}
		if !found {
			t.Errorf("the snapshots are %+v", points.Snapshots)
		}
	} else {
		a.send("after", a.script(rig.Say("it goes on")))
		a.says("it goes on")
	}
	var is told
	must(t, a.Get(w.ctx, a.Path("/events?all=true&limit=1000"), &is.Events))
	if len(is.Events.Events) <= len(was.Events.Events) {
		t.Fatalf("%s has %d events, and had %d", a.ID, len(is.Events.Events), len(was.Events.Events))
	}
	for i, e := range was.Events.Events {
		if !reflect.DeepEqual(is.Events.Events[i], e) {
			t.Errorf("event %d of %s is %s, and was %s", i+1, a.ID, clip(is.Events.Events[i]), clip(e))
		}
	}
}

// says waits until the agent has said something.
func (a *actor) says(text string) {
	a.w.t.Helper()
	a.w.until("it says "+text, func() bool {
		for _, e := range only(a.Follower.Seen(), dormouse.AgentMessage) {
			if words(e) == text {
				return true
			}
		}
		return false
	})
}

// clip is the beginning of an event.
func clip(e map[string]any) string { return fmt.Sprintf("%.300s", fmt.Sprint(e)) }
