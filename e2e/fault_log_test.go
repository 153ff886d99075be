//go:build linux

package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// holdBack reads the database as a backup does and does not finish until done is
// called. As long as it reads, the log cannot be begun anew.
func (w *world) holdBack() (done func()) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.Data, "dormouse.db")+"?mode=ro&_pragma=busy_timeout(5000)")
	must(w.t, err)
	tx, err := db.BeginTx(w.ctx, nil)
	must(w.t, err)
	var n int
	must(w.t, tx.QueryRowContext(w.ctx, "SELECT count(*) FROM events").Scan(&n))
	return sync.OnceFunc(func() { must(w.t, errors.Join(tx.Rollback(), db.Close())) })
}

// logSize is how large the log of the database is.
func (w *world) logSize() int64 {
	w.t.Helper()
	at, err := os.Stat(filepath.Join(w.Data, "dormouse.db-wal"))
	must(w.t, err)
	return at.Size()
}

// grower is a session that can be made to write much and do nothing: prompts are
// queued behind a turn that never ends, and cancelled.
type grower struct {
	*rig.Session
	sent int
}

func (w *world) growers() []*grower {
	w.t.Helper()
	all := make([]*grower, 4)
	for n := range all {
		s, err := w.Create(w.ctx, fmt.Sprintf("grower-%d", n), cold, rig.Script("growers", rig.Step{"hang": true}))
		must(w.t, err)
		all[n] = &grower{Session: s}
	}
	return all
}

// grow has all of them write until enough says so.
func (w *world) grow(all []*grower, enough func() bool) {
	w.t.Helper()
	body := strings.Repeat("much to keep ", 4800)
	var running sync.WaitGroup
	for _, g := range all {
		running.Go(func() {
			for !enough() {
				g.sent++
				id := fmt.Sprint(g.sent)
				err := g.Command(w.ctx, "prompts", options{"content": body, "id": id})
				if err == nil {
					_, err = g.Once(w.ctx, http.MethodDelete, g.Path("/queue/"+string(dormouse.PromptID(g.ID, id))), nil, nil)
				}
				if err != nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

// TestB18: another process reads the database for a long time. Neither readers
// nor writers have to wait, and the log is bounded again as soon as that process
// is done.
func TestB18LongReaderHoldsUpNobodyAndTheLogShrinksAgain(t *testing.T) {
	t.Parallel()
	const bound = 40 << 20 // what a log is cut back to, and what has come since
	w := newWorld(t)
	a, growers := w.create(nil), w.growers()
	done := w.holdBack()
	end := time.Now().Add(reads)
	var slowest time.Duration
	for n := 0; time.Now().Before(end) || w.logSize() < 2*bound; n++ {
		begin := time.Now()
		a.send(fmt.Sprint(n), a.script(rig.Say("one of many")))
		slowest = max(slowest, time.Since(begin))
		w.grow(growers, func() bool { return time.Since(begin) > 200*time.Millisecond || w.logSize() > 6*bound })
		must(t, sleep.For(w.ctx, time.Until(begin.Add(200*time.Millisecond))))
	}
	grown := w.logSize()
	done()
	w.until("the log is bounded again", func() bool {
		a.send(fmt.Sprintf("after %d", time.Now().UnixNano()), a.script(rig.Say("one more")))
		return w.logSize() <= bound
	})
	t.Logf("the log was %d MiB and is %d MiB; the slowest prompt took %s", grown>>20, w.logSize()>>20, slowest)
	if slowest > 5*time.Second {
		t.Errorf("a prompt waited %s for somebody who only reads", slowest)
	}
	a.rests()
}

// TestB19: a killed server leaves a log that could not be checkpointed because
// of a reader that never ended.
func TestB19ServerWithAHugeLogStartsSoon(t *testing.T) {
	t.Parallel()
	const soon = 30 * time.Second
	w := newWorld(t)
	a := w.create(cold)
	a.send("first", a.script(rig.Say("first")))
	a.rests()
	done := w.holdBack()
	w.grow(w.growers(), func() bool { return w.logSize() >= 64<<20 })
	a.send("last", a.script(rig.Say("last")))
	a.rests()
	var down time.Time
	w.kill(func() {
		w.rewrite(func() bool { return w.logSize() >= backlog })
		done()
		if size := w.logSize(); size < backlog {
			t.Errorf("the log is %d MiB", size>>20)
		}
		down = time.Now()
	})
	took := time.Since(down)
	t.Logf("a server started in %s over a log of %d MiB", took, int64(backlog)>>20)
	if took > soon {
		t.Errorf("the server took %s to start, want at most %s", took, soon)
	}
	a.send("after", a.script(rig.Say("after")))
	a.rests()
}

// rewrite commits the large events again and again, each time with a space more
// at its end, until enough says so: a long life in a short time.
func (w *world) rewrite(enough func() bool) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.Data, "dormouse.db")+"?_pragma=wal_autocheckpoint(0)&_pragma=synchronous(OFF)")
	must(w.t, err)
	for !enough() {
		_, err := db.ExecContext(w.ctx, "UPDATE events SET payload = payload || ' ' WHERE length(payload) > 10000")
		must(w.t, err)
	}
	must(w.t, db.Close())
}
