package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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
)

// openData opens the deployment in a data directory.
func openData(t *testing.T, data string) *deployment {
	t.Helper()
	return openAt(t, data, dsn{})
}

// openAt opens a deployment as the commands do.
func openAt(t *testing.T, data string, where dsn) *deployment {
	t.Helper()
	s, err := openStore(t.Context(), data, where, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	blobs, err := dir.Open(filepath.Join(data, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	return &deployment{data, s, blobs}
}

// past writes logs as servers have left them.
type past struct {
	t *testing.T
	*deployment
	id    dormouse.SessionID
	epoch store.Epoch
	state law.State
}

// create begins another session.
func (p *past) create(id dormouse.SessionID) {
	p.t.Helper()
	p.id, p.epoch, p.state = id, 0, law.State{}
	p.do(law.Create{Created: dormouse.Created{
		Session: id, Tenant: "local", Owner: dormouse.User("local"), Title: string(id), Recovery: dormouse.RecoverAuto,
		Agent: dormouse.AgentConfig{Name: "agent", Model: "offline"}, Tags: []string{"old"}, Metadata: map[string]string{"of": "the past"},
	}})
}

// claim is a server that takes the session.
func (p *past) claim() {
	p.t.Helper()
	epoch, err := p.store.Claim(p.t.Context(), p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.epoch = epoch
}

// do makes a decision durable, with its large payloads in blobs.
func (p *past) do(v law.Verb) {
	p.t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC).Add(time.Duration(p.state.Seq) * time.Second)
	d, err := law.Decide(p.state, law.Command{By: dormouse.User("local"), Now: now, Epoch: p.epoch, Verb: v})
	if err != nil {
		p.t.Fatalf("%T: %v", v, err)
	}
	events := d.Events
	next, rows := law.Project(p.state, events)
	for i, e := range events {
		if len(e.Payload) > 64<<10 {
			if events[i].Blob, err = p.blobs.Put(p.t.Context(), e.Payload); err != nil {
				p.t.Fatal(err)
			}
			events[i].Payload = nil
		}
	}
	write := p.store.Append
	if p.state.Seq == 0 {
		write = p.store.Create
	}
	if err := write(p.t.Context(), store.Batch{Session: p.id, Epoch: p.epoch, After: p.state.Seq, Events: events, Rows: &rows}); err != nil {
		p.t.Fatal(err)
	}
	p.state = next
}

func (p *past) prompt(id, text string) {
	p.t.Helper()
	content := []dormouse.Block{dormouse.Text(text)}
	p.do(law.Prompt{ID: dormouse.PromptID(p.id, id), Body: dormouse.DigestOf([]byte(text)), Content: content})
}

// take starts a turn on the next prompt.
func (p *past) take(text string) law.Work {
	p.t.Helper()
	p.do(law.Take{Prompt: p.state.Threads[0].Queue[0].ID, Content: []dormouse.Block{dormouse.Text(text)}})
	return law.Work{Turn: p.state.Threads[0].Turn.ID, Attempt: p.state.Threads[0].Turn.Attempt}
}

// call begins a model call.
func (p *past) call(w law.Work) dormouse.OpID {
	p.t.Helper()
	thread := p.state.Threads[0]
	op := dormouse.Op{Kind: dormouse.OpModel, Origin: dormouse.Origin{Thread: thread.ID, Turn: w.Turn, Call: thread.Turn.Calls + 1, Block: -1}}
	op = op.Named(p.id)
	p.do(law.StartOp{Work: w, Op: op})
	return op.ID
}

// converse is a prompt and its answer.
func (p *past) converse(n int, text string) {
	p.t.Helper()
	p.prompt(fmt.Sprintf("p%d", n), text)
	w := p.take(text)
	op := p.call(w)
	p.do(law.FinishOp{Work: w, Op: op, Outcome: dormouse.OutcomeOK, Stop: dormouse.StopEndTurn, Events: []dormouse.Event{{
		Type: dormouse.AgentMessage, Payload: dormouse.Encode(dormouse.Message{Content: []dormouse.Block{dormouse.Text("you said: " + text)}}),
	}}})
	p.do(law.EndTurn{Work: w})
}

// configure makes an agent that has a past of several pages, one that was put
// away, and environments of two tenants that have the same name.
func (p *past) configure() {
	p.t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	do := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	agent := store.Document{
		Tenant: "local", Kind: "agent", ID: "agent_1", Version: 1, Revision: 1, Created: at, Updated: at, Body: []byte(`{"name": "<first>" }`),
	}
	do(p.store.Insert(p.t.Context(), agent))
	for range 20 {
		agent.Version++
		agent.Updated = agent.Updated.Add(time.Second)
		agent.Body = fmt.Appendf(nil, `{"version": %d, "system": %q}`, agent.Version, strings.Repeat("be brief ", 7000))
		do(p.store.Replace(p.t.Context(), agent, true))
		agent.Revision++
	}
	agent.ID, agent.Version, agent.Revision = "agent_2", 3, 1
	do(p.store.Insert(p.t.Context(), agent))
	agent.Archived = at.Add(time.Hour)
	do(p.store.Replace(p.t.Context(), agent, true))
	for _, tenant := range []string{"local", "another"} {
		do(p.store.Insert(p.t.Context(), store.Document{
			Tenant: tenant, Kind: "environment", ID: "env_1", Name: "production", Version: 1, Created: at, Updated: at, Body: []byte(`null`),
		}))
	}
}

// configured is every version of every document of a store.
func configured(t *testing.T, d *deployment) (all []archive.Version) {
	t.Helper()
	err := eachDocument(t.Context(), d.store, func(ref store.DocumentRef) error {
		return eachVersion(t.Context(), d.store, ref, func(v archive.Version) error {
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
	fresh  dormouse.SessionID = "sesn_1fresh"  // nobody ever claimed it
	long   dormouse.SessionID = "sesn_2long"   // several pages of history
	large  dormouse.SessionID = "sesn_3large"  // payloads in blobs, one of them in the queue
	open1  dormouse.SessionID = "sesn_4open"   // a turn with a model call that is open, and a prompt behind it
	ended  dormouse.SessionID = "sesn_5ended"  // terminated
	lapsed dormouse.SessionID = "sesn_6lapsed" // between attempts
)

var seen = []store.Chunk{{N: 0, Text: "once upon "}, {N: 1, Text: "a \x01 "}, {N: 7, Text: "time"}}

// oldData is a data directory that servers have used.
func oldData(t *testing.T) string {
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
	p := &past{t: t, deployment: openData(t, data)}
	p.create(fresh)

	p.create(long)
	p.claim()
	for n := range 60 {
		p.converse(n, fmt.Sprintf("<question %d>", n))
	}

	p.create(large)
	p.claim()
	p.converse(0, strings.Repeat("large ", 30_000))
	p.prompt("queued", strings.Repeat("larger ", 30_000))

	p.create(open1)
	for range 3 {
		p.claim()
	}
	p.prompt("now", "tell me a story")
	op := p.call(p.take("tell me a story"))
	p.prompt("next", "and another")
	var chunks []store.Chunk
	for _, c := range seen {
		c.Op = op
		chunks = append(chunks, c)
	}
	if err := p.store.Append(t.Context(), store.Batch{Session: p.id, Epoch: p.epoch, After: p.state.Seq, Chunks: chunks}); err != nil {
		t.Fatal(err)
	}

	p.configure()

	p.create(ended)
	p.claim()
	p.converse(0, "the last word")
	p.do(law.Terminate{Reason: "done"})

	p.create(lapsed)
	p.claim()
	p.prompt("now", "try")
	w := p.take("try")
	p.do(law.FailAttempt{Work: w, Error: "model_error", Message: "it is away", Retry: true, Until: time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err := p.store.Close(); err != nil {
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

// content is everything that a store holds and an archive carries, and what
// follows from it.
type content struct {
	Epoch  store.Epoch
	Log    dormouse.Digest
	Rows   dormouse.Rows
	Chunks []store.Chunk
}

func contents(t *testing.T, d *deployment) map[dormouse.SessionID]content {
	t.Helper()
	all := make(map[dormouse.SessionID]content)
	err := eachSession(t.Context(), d.store, func(id dormouse.SessionID) (err error) {
		var c content
		var errs [5]error
		c.Epoch, errs[0] = d.store.Epoch(t.Context(), id)
		c.Log, errs[1] = digestOf(t.Context(), d.store, id)
		c.Rows.Session, errs[2] = d.store.Session(t.Context(), id)
		c.Rows.Prompts, errs[3] = d.store.Prompts(t.Context(), id)
		c.Rows.Ops, errs[4] = d.store.Ops(t.Context(), id, 1<<20)
		for _, op := range c.Rows.Ops {
			chunks, err := d.store.Chunks(t.Context(), id, op.ID)
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

func logOf(t *testing.T, d *deployment, id dormouse.SessionID) []dormouse.Event {
	t.Helper()
	events, err := d.store.Read(t.Context(), id, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// storeCommand runs a command on the store in data and expects its exit code.
func storeCommand(t *testing.T, code int, data string, args ...string) (out, errs string) {
	t.Helper()
	out, errs, got := runIn(t.Context(), "", append([]string{"--data", data, "store"}, args...)...)
	if got != code {
		t.Fatalf("store %v: exit %d, want %d: %s%s", args, got, code, out, errs)
	}
	return out, errs
}
