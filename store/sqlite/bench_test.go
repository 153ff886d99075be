package sqlite_test

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
)

// sessions is how many write at once.
const sessions = 64

// payload is as large as a usual event.
var payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 380) + `"}`)

// BenchmarkAppend compares durable appends from 64 sessions with the least
// SQLite could do: one insert each, in a group commit that does nothing else.
// Each append of the store is one event with its rows.
func BenchmarkAppend(b *testing.B) {
	b.Run("bare", func(b *testing.B) { drive(b, newBare(b)) })
	b.Run("event", func(b *testing.B) {
		drive(b, newAppends(b, func(*store.Batch) {}))
	})
	b.Run("prompt", func(b *testing.B) {
		drive(b, newAppends(b, func(batch *store.Batch) {
			e := &batch.Events[0]
			e.Type = dormouse.PromptQueued
			batch.Rows.Prompts = []dormouse.PromptRecord{{
				ID: e.ID, Thread: e.Thread, Status: dormouse.PromptIsQueued, Body: dormouse.DigestOf(payload), Seq: e.Seq, Queued: e.Time,
			}}
			batch.Rows.Session.Due = dormouse.DueNow
		}))
	})
	b.Run("op", func(b *testing.B) {
		drive(b, newAppends(b, func(batch *store.Batch) {
			op := dormouse.Op{Kind: dormouse.OpExec, Args: dormouse.DigestOf(payload), Origin: dormouse.Origin{
				Thread: dormouse.PrimaryThread(batch.Session), Turn: "turn_0123456789", Call: 1, Command: fmt.Sprint(batch.After),
			}}.Named(batch.Session)
			batch.Rows.Ops = []dormouse.OpRecord{{Op: op, Status: dormouse.OpOpen, Started: batch.Events[0].Time}}
		}))
	})
	b.Run("point", func(b *testing.B) {
		drive(b, newAppends(b, func(batch *store.Batch) {
			names := dormouse.SnapshotBlobs{Snapshot: dormouse.SnapshotID(fmt.Sprintf("snap_%026d", batch.After))}
			for n := range uint64(64) { // all but one are those of the point before
				names.Digests = append(names.Digests, dormouse.DigestOf(fmt.Append(nil, batch.Session, batch.After+n)))
			}
			batch.Rows.SnapshotBlobs = []dormouse.SnapshotBlobs{names}
		}))
	})
}

// BenchmarkList turns to a page in the middle of ten thousand sessions.
func BenchmarkList(b *testing.B) {
	const count = 10_000
	s := open(b, b.TempDir())
	defer shut(b, s)
	var running sync.WaitGroup
	for worker := range sessions {
		running.Go(func() {
			for n := worker; n < count; n += sessions {
				create(b, s, sessionID(n), func(batch *store.Batch) {
					i := &batch.Rows.Session
					i.Created = start.Add(time.Duration(n/10) * time.Second)
					i.Owner = dormouse.User(fmt.Sprint(n % 10))
					if n%1000 == 0 {
						i.Phase, i.Due = dormouse.PhaseError, i.Created
					}
				})
			}
		})
	}
	running.Wait()
	for name, q := range map[string]store.Query{
		"tenant":     {},
		"owner":      {Owner: dormouse.User("7")},
		"rare phase": {Phase: dormouse.PhaseError},
	} {
		q.Tenant, q.After, q.Limit = "acme", sessionID(count/2), 50
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Sessions(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("due", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Due(b.Context(), start.Add(time.Hour), 50); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// drive calls write from all sessions at once, b.N times in all.
func drive(b *testing.B, write func(session, n int) error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	var running sync.WaitGroup
	for session := range sessions {
		running.Go(func() {
			for n := range b.N/sessions + 1 {
				if err := write(session, n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64((b.N/sessions+1)*sessions)/time.Since(began).Seconds(), "appends/s")
}

func newAppends(b *testing.B, change func(*store.Batch)) func(session, n int) error {
	s := open(b, b.TempDir())
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	var writers [sessions]*writer
	for i := range writers {
		writers[i] = create(b, s, sessionID(i))
	}
	return func(session, _ int) error {
		w := writers[session]
		batch := w.batch(1)
		batch.Events[0].Payload = payload
		change(&batch)
		return w.add(b.Context(), batch)
	}
}

// newBare is a group commit of one insert per append.
func newBare(b *testing.B) func(session, n int) error {
	path := filepath.Join(b.TempDir(), "bare.db")
	c, err := new(sqlite.Driver).Open("file:" + path + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	stmt := func(text string) func(args ...driver.Value) error {
		s, err := c.Prepare(text)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		return func(args ...driver.Value) error {
			named := make([]driver.NamedValue, len(args))
			for i, a := range args {
				named[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
			}
			_, err := s.(driver.StmtExecContext).ExecContext(context.Background(), named)
			return err
		}
	}
	b.Cleanup(func() { c.Close() })
	if err := stmt(`CREATE TABLE events (session INTEGER NOT NULL, seq INTEGER NOT NULL, payload TEXT, UNIQUE (session, seq)) STRICT`)(); err != nil {
		b.Fatal(err)
	}
	begin, commit := stmt(`BEGIN IMMEDIATE`), stmt(`COMMIT`)
	insert := stmt(`INSERT INTO events (session, seq, payload) VALUES (?, ?, ?)`)

	type job struct {
		session, n int
		done       chan error
	}
	jobs := make(chan job, 256)
	var running sync.WaitGroup
	running.Go(func() {
		for j := range jobs {
			group := []job{j}
			runtime.Gosched()
			for len(group) < 256 && len(jobs) > 0 {
				group = append(group, <-jobs)
			}
			err := begin()
			for _, j := range group {
				if err == nil {
					err = insert(int64(j.session), int64(j.n), string(payload))
				}
			}
			if err == nil {
				err = commit()
			}
			for _, j := range group {
				j.done <- err
			}
		}
	})
	b.Cleanup(func() { close(jobs); running.Wait() })
	return func(session, n int) error {
		done := make(chan error, 1)
		jobs <- job{session, n, done}
		return <-done
	}
}
