//go:build linux

package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// dreams is what the next version of this program has more: an event that it writes when
// a session is called "dreaming", which counts as a thousand messages, and a column.
var dreams = []rig.Edit{
	{Path: "version.go", Old: "const LogVersion = 1\n", New: "const LogVersion = 2\n"},
	{Path: "version.go", Old: "\t\treturn 1\n\t}\n", New: "\t\treturn 1\n\tcase \"session.dreamt\":\n\t\treturn 2\n\t}\n"},
	{Path: "session/law/apply.go", Old: "\tcase dormouse.ParentTold:\n", New: "\tcase \"session.dreamt\":\n\t\ts.Messages += 1000\n\tcase dormouse.ParentTold:\n"},
	{
		Path: "session/law/describe.go", Old: "\tvar update dormouse.Update\n",
		New: "\tif v.Title != nil && *v.Title == \"dreaming\" {\n\t\td.add(\"session.dreamt\", \"\", struct{}{})\n\t}\n\tvar update dormouse.Update\n",
	},
	{Path: "store/postgres/migrations/0011_dreams.sql", New: "-- opens from: 10\nALTER TABLE sessions ADD COLUMN dreams bigint NOT NULL DEFAULT 0;\n"},
	{Path: "store/sqlite/migrations/0011_dreams.sql", New: "-- opens from: 10\nALTER TABLE sessions ADD COLUMN dreams INTEGER NOT NULL DEFAULT 0;\n"},
}

// nextVersion is this program as it might be one version on.
var nextVersion = sync.OnceValues(func() (rig.Binary, error) {
	return rig.BuildVariant(context.Background(), filepath.Join(scratch, "next"), built, dreams...)
})

// upgrade is a fleet whose first server is of this version and whose second is of the
// next one.
type upgrade struct {
	*fleet
	back chan struct{} // the next life of the second begins once it is closed
}

const older, newer = 0, 1

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	next, err := nextVersion()
	must(t, err)
	pg, name := sharedDatabase(t)
	u := &upgrade{back: make(chan struct{})}
	u.fleet = newFleet(t, 2, pg, name, func(i int, s *rig.Server) {
		if i == newer {
			s.Binary = next
		}
	})
	u.keepers[newer].Between = func(int) {
		select {
		case <-u.back:
		case <-u.ctx.Done():
		}
	}
	return u
}

// via is a session for a client that speaks to one server only.
func (u *upgrade) via(i int, a *actor) *rig.Session {
	c := u.keepers[i].Client()
	u.t.Cleanup(c.Close)
	return &rig.Session{Client: c, ID: a.ID}
}

// create makes a session on one server, and has that one load it.
func (u *upgrade) create(i int, tag string) *actor {
	u.t.Helper()
	c := u.keepers[i].Client()
	u.t.Cleanup(c.Close)
	a := &actor{w: u.world, tag: tag}
	s, err := c.Create(u.ctx, tag, cold, "")
	must(u.t, err)
	a.Session = &rig.Session{Client: u.Client, ID: s.ID} // followed on any server
	a.Follow(u.ctx, true)
	u.t.Cleanup(func() { a.Follower.Close() })
	a.mustAnswer(i, u, "first")
	return a
}

// mustAnswer has a session answer a prompt that is sent to one server.
func (a *actor) mustAnswer(i int, u *upgrade, id string) {
	u.t.Helper()
	s := u.via(i, a)
	must(u.t, s.Prompt(u.ctx, id, a.script(rig.Say("said "+id))))
	u.until("it has answered "+id, func() bool {
		for _, e := range a.Follower.Seen() {
			if e.Type == dormouse.AgentMessage && words(e) == "said "+id {
				return true
			}
		}
		return false
	})
}

// refuses checks that a server will not serve a session, and says why.
func (u *upgrade) refuses(i int, a *actor, id string) {
	u.t.Helper()
	s := u.via(i, a)
	_, err := s.Once(u.ctx, http.MethodPost, s.Path("/prompts"), options{"content": "are you there?", "id": id}, nil)
	r := rig.Refused(err)
	if r == nil || r.Status != http.StatusServiceUnavailable || r.Code != "newer_log" ||
		!strings.Contains(r.Message, "needs version 2 and this one knows version 1") || !strings.Contains(r.Message, "upgrade this one") {
		u.t.Errorf("a prompt to an older server: %v", err)
	}
	var shown struct {
		Title string `json:"title"`
		Newer string `json:"newer"`
	}
	must(u.t, s.Get(u.ctx, s.Path(""), &shown))
	if shown.Title != "dreaming" || !strings.Contains(shown.Newer, "is of a newer program") {
		u.t.Errorf("an older server shows %+v", shown)
	}
}

// ownerless waits a while, in which no server may take a session.
func (u *upgrade) ownerless(a *actor, long time.Duration) {
	u.t.Helper()
	for until := time.Now().Add(long); time.Now().Before(until); {
		owners, err := u.direct.Owners(u.ctx)
		must(u.t, err)
		if owners[a.ID] == "server-0" {
			u.t.Fatal("an older server has taken it")
		}
		must(u.t, sleep.For(u.ctx, 20*time.Millisecond))
	}
}

// One server is of the next version and writes what this one does not know. Whatever
// happens to it, this one leaves such sessions alone and serves the others.
func TestAnOlderServerLeavesWhatANewerOneWroteToOthers(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t)
	plain, moved, dreaming := u.create(older, "plain"), u.create(newer, "moved"), u.create(newer, "dreamer")
	plain.mustAnswer(newer, u, "to the other") // which asks the older one

	s := u.via(newer, dreaming)
	_, err := s.Once(u.ctx, http.MethodPatch, s.Path(""), options{"title": "dreaming"}, nil)
	must(t, err)
	dreaming.mustAnswer(older, u, "through the older one") // which asks the newer one
	wait, open := u.gate()
	must(t, s.Prompt(u.ctx, "works", dreaming.script(rig.Bash(wait), rig.Say("it went on"))))
	u.until("it works", func() bool { return dreaming.show().Phase == dormouse.PhaseRunning })

	u.life(newer).Kill()
	u.ownerless(dreaming, lease+3*time.Second)
	u.refuses(older, dreaming, "while the newer one is gone")
	plain.mustAnswer(older, u, "goes on")
	moved.mustAnswer(older, u, "taken over")
	u.ownerless(dreaming, time.Second)

	close(u.back)
	_, err = u.keepers[newer].Live(u.ctx)
	must(t, err)
	open()
	u.until("it went on", func() bool {
		said := only(dreaming.Follower.Seen(), dormouse.AgentMessage)
		return len(said) > 0 && words(said[len(said)-1]) == "it went on"
	})
	dreaming.mustAnswer(older, u, "again through the older one")
	if n := counted(t, u, s); n < 1000 {
		t.Errorf("%d messages, want those of the dream among them", n)
	}

	// A step back: the newer one is stopped in order, and the older one starts on the
	// database that the newer one has changed.
	for _, i := range []int{newer, older} {
		must(t, u.keepers[i].Halt(u.ctx))
	}
	u.keepers[older].Resume()
	u.life(older)
	plain.mustAnswer(older, u, "after a step back")
	moved.mustAnswer(older, u, "after a step back")
	u.refuses(older, dreaming, "after a step back")
	u.ownerless(dreaming, time.Second)

	u.keepers[newer].Resume()
	u.life(newer)
	u.until("a newer server has it", func() bool {
		_, err := s.Once(u.ctx, http.MethodPost, s.Path("/prompts"), options{"content": dreaming.script(rig.Say("awake")), "id": "last"}, nil)
		return err == nil
	})
	u.until("it speaks", func() bool {
		said := only(dreaming.Follower.Seen(), dormouse.AgentMessage)
		return words(said[len(said)-1]) == "awake"
	})
	for _, i := range []int{older, newer} {
		must(t, u.keepers[i].Halt(u.ctx))
	}
	if wrong, err := u.keepers[newer].Check(u.ctx); err != nil || wrong != "" {
		t.Errorf("the newer program finds %s, %v", wrong, err)
	}
	if wrong, err := u.keepers[older].Check(u.ctx); err != nil || !strings.Contains(wrong, "failed=1") || !strings.Contains(wrong, "is of a newer program") {
		t.Errorf("the older program finds %q, %v", wrong, err)
	}
}

// counted is how many messages a session is said to have.
func counted(t *testing.T, u *upgrade, s *rig.Session) int64 {
	t.Helper()
	var shown struct {
		Metrics dormouse.Metrics `json:"metrics"`
	}
	must(t, s.Get(u.ctx, s.Path(""), &shown))
	return shown.Metrics.Messages
}
