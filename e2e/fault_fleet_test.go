//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/harness/wire"
	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// The database server that tests share, unless they do something to it.
var (
	database   *pgserver.Server
	databaseMu sync.Mutex // guards database, and that it is asked by one at a time
	databases  int        // guarded by databaseMu; how many it has
)

// sharedDatabase is a database of the server that tests share.
func sharedDatabase(t *testing.T) (pg *pgserver.Server, name string) {
	t.Helper()
	databaseMu.Lock()
	defer databaseMu.Unlock()
	if database == nil {
		var err error
		database, err = pgserver.Start(context.Background(), "max_connections=300")
		must(t, err)
	}
	databases++
	name = fmt.Sprintf("d%d", databases)
	must(t, database.CreateDB(t.Context(), name, ""))
	return database, name
}

// ownDatabase is a database server that a test has for itself.
func ownDatabase(t *testing.T, settings ...string) (pg *pgserver.Server, name string) {
	t.Helper()
	pg, err := pgserver.Start(t.Context(), settings...)
	must(t, err)
	t.Cleanup(func() { must(t, pg.Stop()) })
	must(t, pg.CreateDB(t.Context(), "d", ""))
	return pg, "d"
}

// fleet is several servers of one database, each with a wire of its own to it.
type fleet struct {
	*world
	pg      *pgserver.Server
	name    string // of the database
	direct  rig.Server
	keepers []*rig.Keeper
	wires   []*wire.Wire
}

// lease is short, so that losing one does not take long, and long enough for a
// machine that has other things to do.
const lease = 2 * time.Second

// newFleet starts n servers, each changed as change says.
func newFleet(t *testing.T, n int, pg *pgserver.Server, name string, change ...func(i int, s *rig.Server)) *fleet {
	t.Helper()
	w, s := layOut(t)
	w.slack = lease / 4 // the database's clock is asked over a wire, which may hold the answer up
	s.Store = rig.Store{URL: pg.URL(name), Lease: lease}
	f := &fleet{world: w, pg: pg, name: name, direct: *s}
	servers := rig.NewFleet(w.ctx, *s, n, nil)
	f.keepers = servers.Keepers
	for i, k := range f.keepers {
		line, err := wire.New("unix", pg.Socket())
		must(t, err)
		t.Cleanup(line.Close)
		f.wires = append(f.wires, line)
		k.Store.URL = fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", line.Addr(), name)
		k.Stubborn = true
		for _, c := range change {
			c(i, k.Server)
		}
	}
	w.Keeper, w.Client = f.keepers[0], servers.Client()
	w.Patience = 2 * lease
	servers.Run()
	w.endsWith(f.keepers...)
	for _, k := range f.keepers {
		_, err := k.Live(w.ctx)
		must(t, err)
	}
	return f
}

// life is the process of the i-th server.
func (f *fleet) life(i int) *rig.Life {
	f.t.Helper()
	l, err := f.keepers[i].Live(f.ctx)
	must(f.t, err)
	return l
}

// owner is the server that the database says has a session, other than not.
func (f *fleet) owner(a *actor, not int) int {
	f.t.Helper()
	for {
		owners, err := f.direct.Owners(f.ctx)
		must(f.t, err)
		for i := range f.keepers {
			if i != not && owners[a.ID] == fmt.Sprintf("server-%d", i) {
				return i
			}
		}
		if err := sleep.For(f.ctx, 5*time.Millisecond); err != nil {
			f.t.Fatalf("waiting for an owner of %s other than %d: %v", a.ID, not, err)
		}
	}
}

// at has the i-th server take a prompt.
func (f *fleet) at(i int, a *actor, clientID, content string) {
	f.t.Helper()
	c := f.keepers[i].Client()
	defer c.Close()
	var answer struct {
		ID dormouse.EventID `json:"id"`
	}
	must(f.t, c.Repeat(f.ctx, http.MethodPost, a.Path("/prompts"), options{"content": content, "id": clientID}, &answer))
	must(f.t, a.Prompt(f.ctx, clientID, content)) // so that it is known to be accepted
}

// busy is a session at work on a command that ends when open is called.
func (f *fleet) busy() (a *actor, open func()) {
	f.t.Helper()
	a = f.create(nil)
	wait, open := f.gate()
	a.send("busy", a.script(rig.Bash(a.marked(wait)), rig.Say("it went on")))
	f.until("the command has begun", func() bool { return a.effects("begin") > 0 })
	return a, open
}

// ready reports whether the i-th server says that it can do its work.
func (f *fleet) ready(i int) bool {
	c := f.keepers[i].Client()
	defer c.Close()
	ctx, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	_, err := c.Once(ctx, http.MethodGet, "/readyz", nil, nil)
	return err == nil
}

// loadedOn counts the sessions that the i-th server has in memory.
func (f *fleet) loadedOn(i int) string {
	f.t.Helper()
	if f.life(i).Frozen() {
		return ""
	}
	c := f.keepers[i].Client()
	defer c.Close()
	on := *f.world
	on.Client = c
	return on.loaded()
}

// elsewhere is the same session, followed through another client.
func (a *actor) elsewhere(c *rig.Client) *rig.Session {
	s := &rig.Session{Client: c, ID: a.ID}
	s.Follow(a.w.ctx, true)
	return s
}
