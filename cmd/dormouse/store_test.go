package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/store/sqlite"
)

// openData opens the deployment in a data directory, as the commands do.
func openData(t *testing.T, data string) *deployment {
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
	return &deployment{data, s, blobs}
}

// past writes logs as servers have left them.
type past struct {
	t *testing.T
	*deployment
	id    dormouse.SessionID
	epoch store.Epoch
	state session.State
}

// create begins another session.
func (p *past) create(id dormouse.SessionID) {
	p.t.Helper()
	p.id, p.epoch, p.state = id, 0, session.State{}
	p.do(session.Create{Created: dormouse.Created{
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
func (p *past) do(v session.Verb) {
	p.t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC).Add(time.Duration(p.state.Seq) * time.Second)
	events, err := session.Decide(p.state, session.Command{By: dormouse.User("local"), Now: now, Epoch: p.epoch, Keeps: true, Verb: v})
	if err != nil {
		p.t.Fatalf("%T: %v", v, err)
	}
	next, rows := session.Project(p.state, events)
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
	p.do(session.Prompt{ID: dormouse.PromptID(p.id, id), Body: dormouse.DigestOf([]byte(text)), Content: content})
}

// take starts a turn on the next prompt.
func (p *past) take(text string) session.Work {
	p.t.Helper()
	p.do(session.Take{Prompt: p.state.Threads[0].Queue[0].ID, Content: []dormouse.Block{dormouse.Text(text)}})
	return session.Work{Turn: p.state.Threads[0].Turn.ID, Attempt: p.state.Threads[0].Turn.Attempt}
}

// call begins a model call.
func (p *past) call(w session.Work) dormouse.OpID {
	p.t.Helper()
	thread := p.state.Threads[0]
	op := dormouse.Op{Kind: dormouse.OpModel, Origin: dormouse.Origin{Thread: thread.ID, Turn: w.Turn, Call: thread.Turn.Calls + 1, Block: -1}}
	op = op.Named(p.id)
	p.do(session.StartOp{Work: w, Op: op})
	return op.ID
}

// converse is a prompt and its answer.
func (p *past) converse(n int, text string) {
	p.t.Helper()
	p.prompt(fmt.Sprintf("p%d", n), text)
	w := p.take(text)
	op := p.call(w)
	p.do(session.FinishOp{Work: w, Op: op, Outcome: dormouse.OutcomeOK, Stop: dormouse.StopEndTurn, Events: []dormouse.Event{{
		Type: dormouse.AgentMessage, Payload: dormouse.Encode(dormouse.Message{Content: []dormouse.Block{dormouse.Text("you said: " + text)}}),
	}}})
	p.do(session.EndTurn{Work: w})
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

	p.create(ended)
	p.claim()
	p.converse(0, "the last word")
	p.do(session.Terminate{Reason: "done"})

	p.create(lapsed)
	p.claim()
	p.prompt("now", "try")
	w := p.take("try")
	p.do(session.FailAttempt{Work: w, Error: "model_error", Message: "it is away", Retry: true, Until: time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err := p.Close(); err != nil {
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
	Rows   store.Rows
	Chunks []store.Chunk
}

func contents(t *testing.T, d *deployment) map[dormouse.SessionID]content {
	t.Helper()
	all := make(map[dormouse.SessionID]content)
	err := eachSession(t.Context(), d.store, func(id dormouse.SessionID) (err error) {
		var c content
		var errs [6]error
		c.Epoch, errs[0] = d.store.Epoch(t.Context(), id)
		c.Log, errs[1] = digestOf(t.Context(), d.store, id)
		c.Rows.Index, errs[2] = d.store.Session(t.Context(), id)
		c.Rows.Prompts, errs[3] = d.store.Prompts(t.Context(), id)
		c.Rows.Ops, errs[4] = d.store.Ops(t.Context(), id, 1<<20)
		c.Rows.Deadlines, errs[5] = d.store.Deadlines(t.Context(), id)
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

func TestADeploymentIsTheSameInAnotherPlace(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	out, _ := storeCommand(t, 0, old, "export", file)
	for _, want := range []string{"exported 6 sessions, ", " and 4 blobs to " + file, "sha256:", filepath.Join(old, "sandbox")} {
		if !strings.Contains(out, want) {
			t.Errorf("export does not say %q: %s", want, out)
		}
	}
	out, _ = storeCommand(t, 0, data, "import", file)
	for _, want := range []string{"verified 6 sessions", filepath.Join(data, "sandbox")} {
		if !strings.Contains(out, want) {
			t.Errorf("import does not say %q: %s", want, out)
		}
	}
	if out, _ := storeCommand(t, 0, data, "rebuild", "--check"); out != "rebuild: sessions=6 changed=0\n" {
		t.Errorf("after the import: %s", out)
	}

	was, is := openData(t, old), openData(t, data)
	before, after := contents(t, was), contents(t, is)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("carried over (-before +after):\n%s", diff)
	}
	if got := after[open1].Chunks; len(got) != len(seen) || after[open1].Epoch != 3 {
		t.Errorf("of the open model call: %v under epoch %d", got, after[open1].Epoch)
	}
	if n := after[long].Rows.Index.Seq; n <= pageEvents {
		t.Errorf("the long session has only %d events, which is no page", n)
	}
	for id := range after {
		log := logOf(t, is, id)
		if diff := cmp.Diff(logOf(t, was, id), log); diff != "" {
			t.Errorf("log of %s (-before +after):\n%s", id, diff)
		}
		for _, e := range log {
			if e.Blob == "" {
				continue
			}
			b, err := is.blobs.Get(t.Context(), e.Blob)
			if err != nil || len(b) < 64<<10 {
				t.Errorf("%s: payload of event %d: %d bytes, %v", id, e.Seq, len(b), err)
			}
		}
	}
}

func TestTheCopyExportsToTheSameArchive(t *testing.T) {
	old, dir, data := oldData(t), t.TempDir(), t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	storeCommand(t, 0, old, "export", one)
	storeCommand(t, 0, data, "import", one)
	storeCommand(t, 0, data, "export", two)
	a, err1 := os.ReadFile(one)
	b, err2 := os.ReadFile(two)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("the archives differ: %d and %d bytes", len(a), len(b))
	}
}

func TestTheReportsAreAlsoJSON(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	out, _ := storeCommand(t, 0, old, "export", "--json", file)
	var e exported
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if e.Sessions != 6 || e.Events < 700 || e.Chunks != 3 || e.Blobs != 4 || e.Lost != 0 || e.Bytes != info.Size() || e.Digest.Validate() != nil {
		t.Errorf("exported %+v, %d bytes", e, info.Size())
	}
	for _, c := range []struct {
		args            []string
		added, verified uint64
	}{
		{[]string{"--check"}, 0, 0},
		{nil, e.Events, 6},
		{nil, 0, 6}, // all of it is there
	} {
		out, _ := storeCommand(t, 0, data, append([]string{"import", "--json", file}, c.args...)...)
		var i imported
		if err := json.Unmarshal([]byte(out), &i); err != nil {
			t.Fatal(err)
		}
		if i.Total != e.Total || i.Digest != e.Digest || i.Added != c.added || i.Verified != c.verified {
			t.Errorf("%v: imported %+v, want %d events added and %d sessions verified", c.args, i, c.added, c.verified)
		}
	}
}

func TestAnExportGoesToStandardOutput(t *testing.T) {
	old := oldData(t)
	file := filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, old, "export", file)
	out, errs := storeCommand(t, 0, old, "export", "-")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out != string(b) || !strings.Contains(errs, "exported 6 sessions") {
		t.Errorf("%d bytes, want %d; said %s", len(out), len(b), errs)
	}
}

// A payload that a failing disk has taken costs itself, and is told.
func TestALostPayloadIsToldAndCostsNothingElse(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	d := openData(t, old)
	var lost []dormouse.Digest
	for _, e := range logOf(t, d, large) {
		if e.Blob != "" {
			lost = append(lost, e.Blob)
		}
	}
	if err := errors.Join(d.blobs.Delete(t.Context(), lost[len(lost)-1]), d.Close()); err != nil {
		t.Fatal(err)
	}
	hex := strings.TrimPrefix(string(lost[1]), "sha256:")
	if err := os.WriteFile(filepath.Join(old, "blobs", "sha256", hex[:2], hex), []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs := storeCommand(t, exitSeeTo, old, "export", file)
	if strings.Count(errs, string(large)+": the payload of event") != 2 || !strings.Contains(out, "2 blobs could not be read") {
		t.Errorf("said %s%s", out, errs)
	}
	storeCommand(t, 0, data, "import", file)
	was, is := contents(t, openData(t, old)), contents(t, openData(t, data))
	if was[large].Log != is[large].Log || len(is) != 6 {
		t.Errorf("%d sessions, the log is %s, was %s", len(is), is[large].Log, was[large].Log)
	}
}

func TestADamagedArchiveChangesNothing(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	storeCommand(t, 0, old, "export", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() []byte{
		"cut off":   func() []byte { return b[:len(b)-1] },
		"changed":   func() []byte { c := []byte(string(b)); c[len(c)*2/3] ^= 1; return c },
		"no sample": func() []byte { return []byte("no archive at all") },
	} {
		if err := os.WriteFile(file, damage(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, errs := storeCommand(t, exitError, data, "import", file); !strings.Contains(errs, "import "+file+": ") || !strings.Contains(errs, "archive") {
			t.Errorf("%s: said %s", name, errs)
		}
		d := openData(t, data)
		if all := contents(t, d); len(all) != 0 {
			t.Errorf("%s: %d sessions were written", name, len(all))
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnotherHistoryIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	old, file := oldData(t), filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, old, "export", file)
	for name, c := range map[string]struct {
		live func(p *past) // what the target has lived through
		want string
	}{
		"a session of the same name": {func(p *past) {
			p.create(ended)
			for range 5 {
				p.claim()
			}
			p.do(session.Terminate{Reason: "another"})
		}, "another one here"},
		"the same session, gone on": {func(p *past) {
			storeCommand(t, 0, p.data, "import", file)
			p.deployment = openData(t, p.data)
			p.id, p.state = open1, session.State{}
			p.claim()
			for _, e := range logOf(t, p.deployment, open1) {
				p.state = session.Apply(p.state, e)
			}
			p.do(session.Recover{})
		}, "it has gone on here"},
		"the beginning of it, from before": {func(p *past) {
			p.create(long)
		}, "older archive"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &past{t: t, deployment: &deployment{data: t.TempDir()}}
			if !strings.Contains(name, "gone on") {
				p.deployment = openData(t, p.data)
			}
			c.live(p)
			before := contents(t, p.deployment)
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"import", file, "--check"}, {"import", file}} {
				if _, errs := storeCommand(t, exitError, p.data, args...); !strings.Contains(errs, c.want) {
					t.Errorf("%v: said %s", args, errs)
				}
			}
			if diff := cmp.Diff(before, contents(t, openData(t, p.data))); diff != "" {
				t.Errorf("a refused import changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOtherSessionsAreLeftAlone(t *testing.T) {
	old, file, data := oldData(t), filepath.Join(t.TempDir(), "archive"), t.TempDir()
	storeCommand(t, 0, old, "export", file)
	p := &past{t: t, deployment: openData(t, data)}
	p.create("sesn_own")
	p.claim()
	p.converse(0, "mine")
	own := contents(t, p.deployment)["sesn_own"]
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	storeCommand(t, 0, data, "import", file)
	all := contents(t, openData(t, data))
	if diff := cmp.Diff(own, all["sesn_own"]); diff != "" || len(all) != 7 {
		t.Errorf("%d sessions, its own (-before +after):\n%s", len(all), diff)
	}
}

// dying is a store that is gone after so many writes.
type dying struct {
	store.Store
	left int
}

var errDead = errors.New("killed")

func (d *dying) write(do func() error) error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return do()
}

func (d *dying) Import(ctx context.Context, b store.Batch) error {
	return d.write(func() error { return d.Store.Import(ctx, b) })
}

func (d *dying) Append(ctx context.Context, b store.Batch) error {
	return d.write(func() error { return d.Store.Append(ctx, b) })
}

func (d *dying) Rebuild(ctx context.Context, id dormouse.SessionID, rows store.Rows) error {
	return d.write(func() error { return d.Store.Rebuild(ctx, id, rows) })
}

func TestAnImportThatDiesBetweenAnyTwoWritesCompletes(t *testing.T) {
	old, file := oldData(t), filepath.Join(t.TempDir(), "archive")
	storeCommand(t, 0, old, "export", file)
	want := contents(t, openData(t, old))
	take := func(d *deployment) error {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = importArchive(t.Context(), f, d, false, newProgress(&safeBuffer{}))
		return err
	}
	blobs := openData(t, t.TempDir()).blobs
	n := 0
	for died := true; died; n++ {
		d := &deployment{t.TempDir(), new(memory.Store), blobs}
		err := take(&deployment{d.data, &dying{d.store, n}, d.blobs})
		if died = errors.Is(err, errDead); !died && err != nil {
			t.Fatal(err)
		}
		if died {
			half(t, d, want)
		}
		if err := take(d); err != nil {
			t.Fatalf("after %d writes: %v", n, err)
		}
		if diff := cmp.Diff(want, contents(t, d), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("after %d writes (-want +got):\n%s", n, diff)
		}
	}
	if n < 15 {
		t.Errorf("only %d writes", n)
	}
}

// half checks that nothing runs or shows a session that is not all there.
func half(t *testing.T, d *deployment, whole map[dormouse.SessionID]content) {
	t.Helper()
	due, err := d.store.Due(t.Context(), time.Now(), 100)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := d.store.Sessions(t.Context(), store.Query{Tenant: "local", Limit: 100, Archived: true})
	if err != nil {
		t.Fatal(err)
	}
	shown := due
	for _, row := range listed {
		shown = append(shown, row.Session)
	}
	now := contents(t, d)
	for _, id := range shown {
		if diff := cmp.Diff(whole[id], now[id], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s runs or is shown before it is whole (-whole +now):\n%s", id, diff)
		}
	}
	for id, c := range now {
		if !c.Rows.Index.Arriving() {
			continue
		}
		if _, err := rebuild(t.Context(), d, false, nil); err == nil || !strings.Contains(err.Error(), string(id)+" is not whole") {
			t.Errorf("rebuilt with %v", err)
		}
	}
}

func TestAnExportIsThereWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "archive")
	if err := os.WriteFile(file, []byte("the last one"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := oldData(t)
	d := openData(t, old)
	x := &exporter{from: &deployment{d.data, &unread{d.store}, d.blobs}, progress: newProgress(&safeBuffer{})}
	if _, err := x.export(t.Context(), file, nil); !errors.Is(err, errDead) {
		t.Fatalf("exported with %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	left, err2 := os.ReadDir(dir)
	if err := errors.Join(err, err2); err != nil || string(b) != "the last one" || len(left) != 1 {
		t.Errorf("the file holds %q, the directory %v, %v", b, left, err)
	}
	if err := os.WriteFile(file+".part", []byte("what a kill left"), 0o600); err != nil {
		t.Fatal(err)
	}
	storeCommand(t, 0, old, "export", file)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
}

// unread is a store that cannot be read to the end.
type unread struct{ store.Store }

func (u *unread) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	if id == ended {
		return nil, errDead
	}
	return u.Store.Read(ctx, id, after, limit)
}

// A log that is not whole makes no archive that says it is.
func TestALogWithAGapIsNotExported(t *testing.T) {
	d := openData(t, oldData(t))
	for name, s := range map[string]store.Store{"a gap": &gap{d.store, false}, "an early end": &gap{d.store, true}} {
		x := &exporter{from: &deployment{d.data, s, d.blobs}, progress: newProgress(&safeBuffer{})}
		if _, err := x.export(t.Context(), "-", &safeBuffer{}); err == nil || !strings.Contains(err.Error(), string(ended)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type gap struct {
	store.Store
	atEnd bool
}

func (g *gap) Read(ctx context.Context, id dormouse.SessionID, after uint64, limit int) ([]dormouse.Event, error) {
	events, err := g.Store.Read(ctx, id, after, limit)
	missing := uint64(2)
	if g.atEnd {
		row, err := g.Session(ctx, ended)
		if err != nil {
			return nil, err
		}
		missing = row.Seq
	}
	return slices.DeleteFunc(events, func(e dormouse.Event) bool { return id == ended && e.Seq == missing }), err
}

func TestAServerThatRunsKeepsItsStoreToItself(t *testing.T) {
	data := t.TempDir()
	s := startServer(t, data)
	for _, args := range [][]string{{"export", filepath.Join(t.TempDir(), "archive")}, {"migrate"}, {"rebuild"}} {
		if _, errs := storeCommand(t, exitError, data, args...); !strings.Contains(errs, "stop the server") {
			t.Errorf("%v: said %s", args, errs)
		}
	}
	storeCommand(t, 0, data, "migrate", "--check")
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

func TestMigrateSaysFromWhereToWhere(t *testing.T) {
	data := t.TempDir()
	out, _ := storeCommand(t, exitSeeTo, data, "migrate", "--check", "--json")
	var m migrated
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.From != 0 || m.To < 1 || !m.Needed {
		t.Errorf("%+v, %v", m, err)
	}
	for _, c := range []struct{ args, want string }{
		{"--check", fmt.Sprintf("schema is at step 0 and this program needs step %d\n", m.To)},
		{"", fmt.Sprintf("schema was at step 0 and is at step %d\n", m.To)},
		{"", fmt.Sprintf("schema is at step %d, the newest\n", m.To)},
		{"--check", fmt.Sprintf("schema is at step %d, the newest\n", m.To)},
	} {
		code := 0
		if strings.Contains(c.want, "needs") {
			code = exitSeeTo
		}
		if out, _ := storeCommand(t, code, data, append([]string{"migrate"}, strings.Fields(c.args)...)...); out != c.want {
			t.Errorf("migrate %s: %q, want %q", c.args, out, c.want)
		}
	}
}

func TestProgressIsToldNowAndThen(t *testing.T) {
	var b safeBuffer
	p := newProgress(&b)
	p.tell("at once")
	p.told = p.told.Add(-time.Minute)
	p.tell("after %s", "a while")
	p.tell("at once again")
	p.done()
	if got := b.String(); got != "after a while\n" {
		t.Errorf("told %q", got)
	}
}
