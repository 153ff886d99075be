//go:build linux

package e2e

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// past is what a version before left behind: a directory of testdata/upgrade, whose README
// says how it was made.
type past struct {
	t    *testing.T
	dir  string // below testdata/upgrade
	kind string // sqlite or postgres
	// Sessions are what that version told of each session, by id.
	sessions map[dormouse.SessionID]oldSession
}

type oldSession struct {
	Shown struct {
		Title  string          `json:"title"`
		Status dormouse.Status `json:"status"`
	} `json:"shown"`
	Events struct {
		Events []map[string]any `json:"events"`
	} `json:"events"`
}

func pastOf(t *testing.T, dir, kind string) *past {
	t.Helper()
	p := &past{t: t, dir: dir, kind: kind}
	f, err := os.Open(p.file("before.json.gz"))
	must(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	must(t, err)
	must(t, json.NewDecoder(z).Decode(&p.sessions))
	return p
}

func (p *past) file(name string) string {
	return filepath.Join("testdata", "upgrade", p.dir, p.kind, name)
}

// unpack lays the data directory out as it was left.
func (p *past) unpack(s *rig.Server) {
	p.t.Helper()
	must(p.t, rig.Unpack(p.t.Context(), p.file("data.tar.gz"), s.Data))
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

// What a version before left is opened by this one, is what it was, and goes on: the
// wake-up that came due meanwhile rings, files and snapshots are there, what waits for an
// answer takes one.
func TestWhatAVersionBeforeWroteGoesOn(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "6333ee6"} {
		for name, c := range map[string]struct {
			kind string
			open func(*past, *rig.Server)
		}{
			"SQLite":     {"sqlite", (*past).unpack},
			"PostgreSQL": {"postgres", func(p *past, s *rig.Server) { p.unpack(s); p.load(s) }},
			"archive":    {"sqlite", (*past).take},
		} {
			t.Run(dir+" "+name, func(t *testing.T) { // one by one: copies of a directory take each other's sandboxes for theirs
				p := pastOf(t, dir, c.kind)
				w := newWorld(t, func(s *rig.Server) {
					s.Store = rig.Store{}
					c.open(p, s)
					if wrong, err := s.Check(t.Context()); err != nil || wrong != "" {
						t.Errorf("as it was left: %s, %v", wrong, err)
					}
				})
				p.goOn(w)
				must(t, w.Halt(w.ctx))
				if wrong, err := w.Check(w.ctx); err != nil || wrong != "" {
					t.Errorf("after it went on: %s, %v", wrong, err)
				}
				w.Resume()
			})
		}
	}
}

// goOn looks at every session that was left, and has it go on.
func (p *past) goOn(w *world) {
	p.t.Helper()
	listed, err := w.List(w.ctx, "archived=true")
	must(p.t, err)
	for _, s := range listed {
		if _, ok := p.sessions[s.Session]; !ok {
			p.t.Errorf("there is a session %s, %q, that nobody was told of", s.Session, s.Title)
		}
	}
	if len(listed) != len(p.sessions) {
		p.t.Errorf("there are %d sessions, and were %d", len(listed), len(p.sessions))
	}
	for id, was := range p.sessions {
		a := &actor{w: w, tag: "upgrade", Session: &rig.Session{Client: w.Client, ID: id}}
		a.Follow(w.ctx, true)
		p.t.Cleanup(a.Follower.Close)
		a.goesOn(was)
	}
}

// goings are what sessions do that were left in the middle of something, by their titles.
var goings = map[string]func(*actor){
	"upgraded": (*actor).rings,
	"main":     (*actor).rings,
	"branch":   func(a *actor) { a.finds("written by the agent\nwritten by a person\n") },
	"reverted": func(a *actor) { a.finds("kept\n") },
	"asking": func(a *actor) {
		a.sees(dormouse.QuestionExpired, 1)
		a.says("as you like")
		a.says("after the answer")
	},
	"gated": func(a *actor) {
		use, custom := a.sees(dormouse.AgentToolUse, 1).ID, a.sees(dormouse.AgentCustomToolUse, 1).ID
		must(a.w.t, a.Command(a.w.ctx, "answers", options{"custom_tool_use_id": custom, "content": "found"}))
		must(a.w.t, a.Command(a.w.ctx, "answers", options{"tool_use_id": use, "result": "allow"}))
		a.says("both done")
	},
	"working": func(a *actor) {
		a.sees(dormouse.OpUnknown, 1) // the outcome of a command is unknown if its sandbox is gone
		a.says("carried on")
		a.finds("before\n")
	},
}

// rings is the wake-up that came due while no server ran.
func (a *actor) rings() {
	a.w.t.Helper()
	a.says("it rang")
	a.finds("written by the agent\nwritten by a person\n")
	var snapshots struct {
		Snapshots []struct {
			Label string `json:"label"`
		} `json:"snapshots"`
	}
	must(a.w.t, a.Get(a.w.ctx, a.Path("/snapshots"), &snapshots))
	found := false
	for _, p := range snapshots.Snapshots {
		found = found || p.Label == "as it was"
	}
	if !found {
		a.w.t.Errorf("the snapshots are %+v", snapshots.Snapshots)
	}
}

// finds checks what is in the file of a session.
func (a *actor) finds(files string) {
	a.w.t.Helper()
	a.send("finds", a.script(rig.Bash("cat file.txt"), rig.Say("looked")))
	a.says("looked")
	results := only(a.log(), dormouse.AgentToolResult)
	if last := results[len(results)-1]; !strings.Contains(string(last.Payload), strings.ReplaceAll(files, "\n", `\n`)) {
		a.w.t.Errorf("the files of %s are %s", a.ID, last.Payload)
	}
}

// goesOn compares a session with what was told of it, and has it go on.
func (a *actor) goesOn(was oldSession) {
	t, w := a.w.t, a.w
	t.Helper()
	if shown := a.show(); shown.Title != was.Shown.Title {
		t.Errorf("%s is called %q, and was %q", a.ID, shown.Title, was.Shown.Title)
	}
	ended := was.Shown.Status == dormouse.StatusTerminated
	if ended {
		_, err := a.Once(w.ctx, http.MethodPost, a.Path("/prompts"), options{"id": "after", "content": "are you there?"}, nil)
		refused(t, err, http.StatusConflict, "terminated")
	} else {
		if f := goings[was.Shown.Title]; f != nil {
			f(a)
		}
		a.send("after", a.script(rig.Say("it goes on")))
		a.says("it goes on")
	}
	var is oldSession
	must(t, a.Get(w.ctx, a.Path("/events?all=true&limit=1000"), &is.Events))
	if len(is.Events.Events) < len(was.Events.Events) || !ended && len(is.Events.Events) == len(was.Events.Events) {
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
