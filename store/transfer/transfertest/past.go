// Package transfertest has a deployment that servers have used, and prints the contents
// of a deployment.
package transfertest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/session/law"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/archive"
	"github.com/dormouse-run/dormouse/store/sqlite"
	"github.com/dormouse-run/dormouse/store/transfer"
)

// Open opens the SQLite store and the blobs in a data directory.
func Open(t *testing.T, data string) transfer.Deployment {
	t.Helper()
	s, err := sqlite.Open(t.Context(), data, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	blobs, err := dir.Open(filepath.Join(data, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	return transfer.Deployment{Store: s, Blobs: blobs}
}

// Past writes logs as servers have left them.
type Past struct {
	T *testing.T
	transfer.Deployment
	ID    dormouse.SessionID
	Epoch store.Epoch
	State law.State
}

// Create begins another session.
func (p *Past) Create(id dormouse.SessionID) {
	p.T.Helper()
	p.ID, p.Epoch, p.State = id, 0, law.State{}
	p.Do(law.Create{Created: dormouse.Created{
		Session: id, Tenant: "local", Owner: dormouse.User("local"), Title: string(id), Recovery: dormouse.RecoverAuto,
		Agent: dormouse.AgentConfig{Name: "agent", Model: "offline"}, Tags: []string{"old"}, Metadata: map[string]string{"of": "the past"},
	}})
}

// Claim is a server that takes the session.
func (p *Past) Claim() {
	p.T.Helper()
	epoch, err := p.Store.Claim(p.T.Context(), p.ID, 0)
	if err != nil {
		p.T.Fatal(err)
	}
	p.Epoch = epoch
}

// Do makes a decision durable, with its large payloads in blobs.
func (p *Past) Do(v law.Verb) {
	p.T.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC).Add(time.Duration(p.State.Seq) * time.Second)
	d, err := law.Decide(p.State, law.Command{By: dormouse.User("local"), Now: now, Epoch: p.Epoch, Verb: v})
	if err != nil {
		p.T.Fatalf("%T: %v", v, err)
	}
	events := d.Events
	next, rows := law.Project(p.State, events)
	for i, e := range events {
		if len(e.Payload) > 64<<10 {
			if events[i].Blob, err = p.Blobs.Put(p.T.Context(), e.Payload); err != nil {
				p.T.Fatal(err)
			}
			events[i].Payload = nil
		}
	}
	write := p.Store.Append
	if p.State.Seq == 0 {
		write = p.Store.Create
	}
	if err := write(p.T.Context(), store.Batch{Session: p.ID, Epoch: p.Epoch, After: p.State.Seq, Events: events, Rows: &rows}); err != nil {
		p.T.Fatal(err)
	}
	p.State = next
}

// Prompt queues a prompt.
func (p *Past) Prompt(id, text string) {
	p.T.Helper()
	content := []dormouse.Block{dormouse.Text(text)}
	p.Do(law.Prompt{ID: dormouse.PromptID(p.ID, id), Body: dormouse.DigestOf([]byte(text)), Content: content})
}

// Take starts a turn on the next prompt.
func (p *Past) Take(text string) law.Work {
	p.T.Helper()
	p.Do(law.Take{Prompt: p.State.Threads[0].Queue[0].ID, Content: []dormouse.Block{dormouse.Text(text)}})
	return law.Work{Turn: p.State.Threads[0].Turn.ID, Attempt: p.State.Threads[0].Turn.Attempt}
}

// Call begins a model call.
func (p *Past) Call(w law.Work) dormouse.OpID {
	p.T.Helper()
	thread := p.State.Threads[0]
	op := dormouse.Op{Kind: dormouse.OpModel, Origin: dormouse.Origin{Thread: thread.ID, Turn: w.Turn, Call: thread.Turn.Calls + 1, Block: -1}}
	op = op.Named(p.ID)
	p.Do(law.StartOp{Work: w, Op: op})
	return op.ID
}

// Converse is a prompt and its answer.
func (p *Past) Converse(n int, text string) {
	p.T.Helper()
	p.Prompt(fmt.Sprintf("p%d", n), text)
	w := p.Take(text)
	op := p.Call(w)
	p.Do(law.FinishOp{Work: w, Op: op, Outcome: dormouse.OutcomeOK, Stop: dormouse.StopEndTurn, Events: []dormouse.Event{{
		Type: dormouse.AgentMessage, Payload: dormouse.Encode(dormouse.Message{Content: []dormouse.Block{dormouse.Text("you said: " + text)}}),
	}}})
	p.Do(law.EndTurn{Work: w})
}

// Configure makes an agent that has a past of several pages, one that was put
// away, and environments of two tenants that have the same name.
func (p *Past) Configure() {
	p.T.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	do := func(err error) {
		p.T.Helper()
		if err != nil {
			p.T.Fatal(err)
		}
	}
	agent := store.Document{
		Tenant: "local", Kind: "agent", ID: "agent_1", Version: 1, Revision: 1, Created: at, Updated: at, Body: []byte(`{"name": "<first>" }`),
	}
	do(p.Store.Insert(p.T.Context(), agent))
	for range 20 {
		agent.Version++
		agent.Updated = agent.Updated.Add(time.Second)
		agent.Body = fmt.Appendf(nil, `{"version": %d, "system": %q}`, agent.Version, strings.Repeat("be brief ", 7000))
		do(p.Store.Replace(p.T.Context(), agent, true))
		agent.Revision++
	}
	agent.ID, agent.Version, agent.Revision = "agent_2", 3, 1
	do(p.Store.Insert(p.T.Context(), agent))
	agent.Archived = at.Add(time.Hour)
	do(p.Store.Replace(p.T.Context(), agent, true))
	for _, tenant := range []string{"local", "another"} {
		do(p.Store.Insert(p.T.Context(), store.Document{
			Tenant: tenant, Kind: "environment", ID: "env_1", Name: "production", Version: 1, Created: at, Updated: at, Body: []byte(`null`),
		}))
	}
}

// Documents is every version of every document of a store.
func Documents(t *testing.T, d transfer.Deployment) (all []archive.Version) {
	t.Helper()
	err := transfer.EachDocument(t.Context(), d.Store, func(ref store.DocumentRef) error {
		return transfer.EachVersion(t.Context(), d.Store, ref, func(v archive.Version) error {
			v.Revision = 0 // of one store only
			all = append(all, v)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The sessions of an old deployment.
const (
	Fresh   dormouse.SessionID = "sesn_1fresh"  // never claimed
	Long    dormouse.SessionID = "sesn_2long"   // several pages of history
	Large   dormouse.SessionID = "sesn_3large"  // payloads in blobs, one of them in the queue
	Working dormouse.SessionID = "sesn_4open"   // a turn with a model call that is open, and a prompt behind it
	Ended   dormouse.SessionID = "sesn_5ended"  // terminated
	Lapsed  dormouse.SessionID = "sesn_6lapsed" // between attempts
)

// Seen is what was stored of the model call of Working.
var Seen = []store.Chunk{{N: 0, Text: "once upon "}, {N: 1, Text: "a \x01 "}, {N: 7, Text: "time"}}

// OldData is a data directory that servers have used.
func OldData(t *testing.T) string {
	t.Helper()
	oldFiles.Do(func() { oldFiles.FS = liveThrough(t) })
	data := t.TempDir()
	if err := os.CopyFS(data, oldFiles.FS); err != nil {
		t.Fatal(err)
	}
	return data
}

// oldFiles is written once: it takes hundreds of commits.
var oldFiles struct {
	sync.Once
	fs.FS
}

func liveThrough(t *testing.T) fs.FS {
	t.Helper()
	data := t.TempDir()
	p := &Past{T: t, Deployment: Open(t, data)}
	p.Create(Fresh)

	p.Create(Long)
	p.Claim()
	for n := range 60 {
		p.Converse(n, fmt.Sprintf("<question %d>", n))
	}

	p.Create(Large)
	p.Claim()
	p.Converse(0, strings.Repeat("large ", 30_000))
	p.Prompt("queued", strings.Repeat("larger ", 30_000))

	p.Create(Working)
	for range 3 {
		p.Claim()
	}
	p.Prompt("now", "tell me a story")
	op := p.Call(p.Take("tell me a story"))
	p.Prompt("next", "and another")
	var chunks []store.Chunk
	for _, c := range Seen {
		c.Op = op
		chunks = append(chunks, c)
	}
	if err := p.Store.Append(t.Context(), store.Batch{Session: p.ID, Epoch: p.Epoch, After: p.State.Seq, Chunks: chunks}); err != nil {
		t.Fatal(err)
	}

	p.Configure()

	p.Create(Ended)
	p.Claim()
	p.Converse(0, "the last word")
	p.Do(law.Terminate{Reason: "done"})

	p.Create(Lapsed)
	p.Claim()
	p.Prompt("now", "try")
	w := p.Take("try")
	p.Do(law.FailAttempt{Work: w, Error: "model_error", Message: "it is away", Retry: true, Until: time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err := p.Store.Close(); err != nil {
		t.Fatal(err)
	}
	files := make(fstest.MapFS)
	err := fs.WalkDir(os.DirFS(data), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(data, path))
		files[path] = &fstest.MapFile{Data: b, Mode: 0o600}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Content is everything that a store holds and an archive carries, and what
// follows from it.
type Content struct {
	Epoch  store.Epoch
	Log    dormouse.Digest
	Rows   dormouse.Rows
	Chunks []store.Chunk
}

// Contents is what a deployment holds of each session.
func Contents(t *testing.T, d transfer.Deployment) map[dormouse.SessionID]Content {
	t.Helper()
	all := make(map[dormouse.SessionID]Content)
	err := transfer.EachSession(t.Context(), d.Store, func(id dormouse.SessionID) (err error) {
		var c Content
		var errs [5]error
		c.Epoch, errs[0] = d.Store.Epoch(t.Context(), id)
		c.Log, errs[1] = transfer.LogDigest(t.Context(), d.Store, id)
		c.Rows.Session, errs[2] = d.Store.Session(t.Context(), id)
		c.Rows.Prompts, errs[3] = d.Store.Prompts(t.Context(), id)
		c.Rows.Ops, errs[4] = d.Store.Ops(t.Context(), id, 1<<20)
		for _, op := range c.Rows.Ops {
			chunks, err := d.Store.Chunks(t.Context(), id, op.ID)
			if err != nil {
				return err
			}
			c.Chunks = append(c.Chunks, chunks...)
		}
		all[id] = c
		return errors.Join(errs[:]...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Log is the log of a session.
func Log(t *testing.T, d transfer.Deployment, id dormouse.SessionID) []dormouse.Event {
	t.Helper()
	events, err := d.Store.Read(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return events
}
