package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/pgserver"
	"github.com/dormouse-run/dormouse/store"
)

// sessions is how many write at once.
const sessions = 64

// payload is as large as a usual event.
var payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 380) + `"}`)

// BenchmarkAppend compares durable appends from 64 sessions with what a program
// would do that leaves it all to PostgreSQL: one insert and commit each, on 64
// connections. Each append of the store is one event with its rows. The server
// is as it comes, and waits for its disk.
func BenchmarkAppend(b *testing.B) {
	server, err := pgserver.Start(b.Context(), "max_connections=200")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := server.Stop(); err != nil {
			b.Error(err)
		}
	})
	fresh := func(b *testing.B) string {
		name := fmt.Sprintf("bench%d", databases.Add(1))
		if err := server.CreateDB(b.Context(), name, ""); err != nil {
			b.Fatal(err)
		}
		return server.DSN(name)
	}
	newAppends := func(b *testing.B, change func(*store.Batch)) func(session, n int) error {
		return newAppends(b, fresh(b), change)
	}
	b.Run("plain", func(b *testing.B) { drive(b, newPlain(b, fresh(b))) })
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
			for n := range uint64(64) { // all but one are those of the snapshot before
				names.Digests = append(names.Digests, dormouse.DigestOf(fmt.Append(nil, batch.Session, batch.After+n)))
			}
			batch.Rows.SnapshotBlobs = []dormouse.SnapshotBlobs{names}
		}))
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

func newAppends(b *testing.B, dsn string, change func(*store.Batch)) func(session, n int) error {
	s := open(b, dsn)
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

// newPlain is one insert and commit per append, each session on a connection of
// its own.
func newPlain(b *testing.B, dsn string) func(session, n int) error {
	var conns [sessions]*pgx.Conn
	for i := range conns {
		c, err := pgx.Connect(b.Context(), dsn)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close(b.Context()) })
		conns[i] = c
	}
	if _, err := conns[0].Exec(b.Context(), `CREATE TABLE events (session bigint NOT NULL, seq bigint NOT NULL, payload bytea, PRIMARY KEY (session, seq))`); err != nil {
		b.Fatal(err)
	}
	return func(session, n int) error {
		_, err := conns[session].Exec(b.Context(), `INSERT INTO events (session, seq, payload) VALUES ($1, $2, $3)`, session, n, []byte(payload))
		return err
	}
}
