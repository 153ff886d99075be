//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/harness/wire"
	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// TestB22: the database crashes and recovers while clients ask without a pause.
func TestB22DatabaseThatCrashesLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	pg, name := ownDatabase(t)
	f := newFleet(t, 2, pg, name)
	asking, stop := context.WithCancel(f.ctx)
	defer stop()
	var clients []*asker
	var running sync.WaitGroup
	for n := range 3 {
		session, err := f.Create(f.ctx, fmt.Sprint(n), cold, "")
		must(t, err)
		c := &asker{Session: session, content: "a prompt", acks: make(map[dormouse.EventID]bool)}
		clients = append(clients, c)
		running.Go(func() { c.ask(asking) })
	}
	acknowledged := func() (n int) {
		for _, c := range clients {
			n += len(c.acknowledged())
		}
		return n
	}
	a, open := f.busy()
	for range crashes {
		before := acknowledged()
		must(t, pg.Restart(f.ctx, pgserver.Immediate))
		f.until("clients are answered again", func() bool { return acknowledged() >= before+10 })
	}
	stop()
	running.Wait()
	for _, c := range clients {
		if lost := c.lost(f.ctx, t); len(lost) > 0 {
			t.Errorf("%d prompts were acknowledged, and lost are %v", acknowledged(), lost)
		}
		must(t, c.Insist(f.ctx, "interrupt", options{"flush_queue": true}, func(s rig.Shown) bool { return !s.Turning() && s.Queue == 0 }))
	}
	open()
	a.within(settlesWithin)
	t.Logf("%d prompts survived %d crashes", acknowledged(), crashes)
}

// TestB23: a replica that takes over without the last commits has lost what was
// acknowledged after it fell behind; only a synchronous replica has not. What
// must hold is that no server goes on from state that is lost.
func TestB23FailoverToAReplicaThatIsBehindGoesOnFromWhatItHas(t *testing.T) {
	t.Parallel()
	pg, name := ownDatabase(t)
	f := newFleet(t, 1, pg, name)
	session, err := f.Create(f.ctx, "failover", cold, "")
	must(t, err)
	say := func(id string) {
		must(t, session.Prompt(f.ctx, id, rig.Script("failover", rig.Say(id))))
		_, err := session.Idle(f.ctx)
		must(t, err)
	}
	say("kept")
	f.backUp()
	say("lost")
	f.failOver()
	say("after")
	log, err := session.Events(f.ctx)
	must(t, err)
	known := make(map[dormouse.EventID]bool)
	for _, e := range only(log, dormouse.PromptQueued) {
		known[e.ID] = true
	}
	lost := 0
	for _, ack := range session.Acks() {
		if !known[ack.ID] {
			lost++
		}
	}
	t.Logf("of %d acknowledged prompts %d were lost with the replica that did not have them", len(session.Acks()), lost)
	if lost != 1 || len(only(log, dormouse.AgentMessage)) != 2 {
		t.Errorf("%d prompts were lost, want the one that came too late:\n%s", lost, types(log))
	}
	must(t, f.keepers[0].Halt(f.ctx))
	if wrong, err := f.direct.Check(f.ctx); wrong != "" || err != nil {
		t.Errorf("what is left is not sound: %s, %v", wrong, err)
	}
}

// TestB24: the connection is lost after COMMIT was sent and before it was
// answered. Whether it happened is looked up and not guessed.
func TestB24CommitWithoutAnAnswerIsLookedUp(t *testing.T) {
	t.Parallel()
	pg, name := sharedDatabase(t)
	f := newFleet(t, 1, pg, name)
	a := f.create(nil)
	var mu sync.Mutex
	commits, cut := 0, 0
	f.wires[0].Watch(func(p wire.Piece) bool {
		// The message that binds the statement of that name.
		if p.Back || !bytes.Contains(p.Data, []byte("\x00commit\x00")) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if commits++; commits%9 != 0 { // seldom enough for a turn to end before its attempts do
			return false
		}
		cut++
		return true
	})
	const prompts = 10
	for n := range prompts {
		id := string(rune('a' + n))
		a.send(id, a.script(rig.Bash(a.marked("echo "+id+" >> lines")), rig.Say(id)))
	}
	a.rests()
	f.wires[0].Watch(nil)
	mu.Lock()
	defer mu.Unlock()
	if n := a.effects("end"); n != prompts || cut < prompts/2 {
		t.Errorf("%d commands were carried out, and %d of %d commits went without an answer", n, cut, commits)
	}
	t.Logf("%d of %d commits went without an answer", cut, commits)
}

// TestB25: others have taken every connection there is.
func TestB25NoConnectionLeftIsSaidAndPasses(t *testing.T) {
	t.Parallel()
	pg, name := ownDatabase(t, "max_connections=30", "superuser_reserved_connections=0")
	f := newFleet(t, 1, pg, name)
	a := f.create(cold)
	a.send("before", a.script(rig.Say("before")))
	a.rests()
	f.Patience = time.Minute // a server looks for a connection for a while before it says that there is none
	free := f.hog()
	f.until("no connection is left", func() bool {
		f.wires[0].Cut() // the test cannot choose which connection comes next
		return !f.ready(0)
	})
	err := a.Command(f.ctx, "prompts", options{"content": a.script(rig.Say("hm")), "id": "refused"})
	if r := rig.Refused(err); r == nil || r.Status != http.StatusServiceUnavailable || r.Message == "" {
		t.Errorf("the prompt was answered with %v, want 503 and why", err)
	}
	free()
	a.send("refused", a.script(rig.Say("hm")))
	a.within(settlesWithin)
	if f.Lives() != 1 {
		t.Errorf("it took %d servers, want one", f.Lives())
	}
}

// hog takes connections as they become free, until free is called.
func (f *fleet) hog() (free func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	full := make(chan struct{})
	once := sync.OnceFunc(func() { close(full) })
	var running sync.WaitGroup
	running.Go(func() {
		defer once()
		var taken []*pgx.Conn
		for ctx.Err() == nil {
			c, err := pgx.Connect(ctx, f.pg.DSN(f.name))
			if err != nil {
				once()
				_ = sleep.For(ctx, time.Millisecond)
				continue
			}
			taken = append(taken, c)
		}
		for _, c := range taken {
			_ = c.Close(f.ctx)
		}
	})
	<-full
	return func() { cancel(); running.Wait() }
}

// TestB26: the database calls off transactions again and again, in the middle
// and at the commit.
func TestB26TransactionsCalledOffAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, code, trigger string }{
		{"serialization in the middle", "40001", "CREATE TRIGGER storm BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION storm()"},
		{"serialization at the commit", "40001", "CREATE CONSTRAINT TRIGGER storm AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION storm()"},
		{"deadlock in the middle", "40P01", "CREATE TRIGGER storm BEFORE UPDATE ON sessions FOR EACH STATEMENT EXECUTE FUNCTION storm()"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pg, name := sharedDatabase(t)
			f := newFleet(t, 1, pg, name)
			a := f.create(nil)
			a.phase(dormouse.PhaseReady)
			for _, text := range []string{
				`CREATE FUNCTION storm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF random() < 0.15 THEN RAISE EXCEPTION 'called off' USING ERRCODE = '` + c.code + `'; END IF;
					RETURN COALESCE(NEW, OLD); END $$`,
				c.trigger,
			} {
				must(t, f.exec(text))
			}
			for n := range 10 {
				id := string(rune('a' + n))
				a.send(id, a.script(rig.Bash(a.marked("true")), rig.Say(id)))
			}
			a.rests()
			must(t, f.exec("DROP FUNCTION storm CASCADE"))
			if log := a.log(); place(log, dormouse.SessionError) >= 0 || len(only(log, dormouse.AttemptStarted)) != 10 {
				t.Errorf("it cost an attempt:\n%s", types(log))
			}
		})
	}
}

// exec runs a statement in the fleet's database.
func (f *fleet) exec(text string) error {
	databaseMu.Lock()
	defer databaseMu.Unlock()
	return f.pg.Exec(f.ctx, f.name, text)
}

// TestB27: a pooler that gives a connection to another client after every
// transaction is refused; one that keeps them is as good as the database.
func TestB27PoolerThatSharesConnectionsIsRefused(t *testing.T) {
	t.Parallel()
	pg, name := sharedDatabase(t)
	w, s := layOut(t)
	out, err := exec.CommandContext(w.ctx, s.Binary.Server, "serve", "--data", s.Data, "--listen", "127.0.0.1:0",
		"--store", pooled(t, pg, name, "transaction")).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("pooler")) {
		t.Errorf("serve: %v\n%s; want a refusal that says why", err, out)
	}
	f := newFleet(t, 1, pg, name, func(_ int, s *rig.Server) { s.Store.URL = pooled(t, pg, name, "session") })
	a := f.create(nil)
	a.send("one", a.script(rig.Bash(a.marked("true")), rig.Say("one")))
	a.rests()
}

// pooled starts a pooler before a database and says how to get through it.
func pooled(t *testing.T, pg *pgserver.Server, name, mode string) (url string) {
	t.Helper()
	dir := filepath.Join(pg.Dir(), mode)
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chmod(dir, 0o777)) // it is run by the user of the database
	config := filepath.Join(dir, "pgbouncer.ini")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `
[databases]
* = host=%s user=postgres
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = %s
auth_type = any
pool_mode = %s
`, pg.Dir(), dir, mode), 0o644))
	databaseMu.Lock()
	stop, err := pg.Run(t.Context(), "/usr/sbin/pgbouncer", config)
	databaseMu.Unlock()
	must(t, err)
	t.Cleanup(stop)
	url = strings.Replace(pg.URL(name), neturl.QueryEscape(pg.Dir()), neturl.QueryEscape(dir), 1)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), url)
		if err == nil {
			must(t, c.Close(t.Context()))
			return url
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
