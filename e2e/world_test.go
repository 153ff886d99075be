package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// world is one server across its lives, its model, and what it did to the
// world.
type world struct {
	*rig.Keeper
	*rig.Client
	t       *testing.T
	ctx     context.Context //nolint:containedctx // the test's own
	models  *rig.Models
	witness *rig.Witness
	slack   time.Duration // how far the server's clock may be off ours
	untimed bool          // the server's clock is not ours at all
	damaged bool          // the test damaged what is stored
	lull    *lull
}

// lull is the time between two lives.
type lull struct {
	mu sync.Mutex
	do func() // guarded by mu
}

func (l *lull) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.do = f
}

// take returns what is to be done this time, and never again.
func (l *lull) take() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.do
	l.do = nil
	return f
}

// on is the same world for a part of a test.
func (w *world) on(t *testing.T) *world {
	part := *w
	part.t = t
	return &part
}

// newWorld starts a server, changed as change says.
func newWorld(t *testing.T, change ...func(*rig.Server)) *world {
	t.Helper()
	w, s := layOut(t)
	s.Store = chosenStore(t)
	if s.Store.Shared() {
		w.slack = 100 * time.Millisecond // the database's clock is asked now and then
	}
	for _, f := range change {
		f(s)
	}
	w.Keeper = rig.Keep(w.ctx, s, nil)
	w.Between = func(int) {
		if f := w.lull.take(); f != nil {
			f()
		}
	}
	w.Client = w.Keeper.Client()
	w.Run()
	w.endsWith(w.Keeper)
	w.live()
	return w
}

// chosenStore is the store that DORMOUSE_E2E_STORE names: the file in the data
// directory unless it says postgres.
func chosenStore(t *testing.T) rig.Store {
	t.Helper()
	if os.Getenv("DORMOUSE_E2E_STORE") != "postgres" {
		return rig.Store{}
	}
	server, name := sharedDatabase(t)
	return rig.Store{URL: server.URL(name), Lease: time.Second}
}

// layOut makes a world without a server, and the server that is to come.
func layOut(t *testing.T) (*world, *rig.Server) {
	t.Helper()
	sources()
	dir, err := rig.TempDir("dormouse-e2e-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("it took too long"))
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, lull: new(lull)}
	w.models, err = rig.NewModels()
	must(t, err)
	t.Cleanup(w.models.Close)
	w.witness, err = rig.NewWitness(filepath.Join(dir, "witness"))
	must(t, err)
	t.Cleanup(w.witness.Close)
	return w, &rig.Server{Binary: built, Data: filepath.Join(dir, "data"), Model: w.models.URL(), Log: filepath.Join(dir, "log")}
}

// endsWith ends servers when the test ends.
func (w *world) endsWith(keepers ...*rig.Keeper) {
	w.t.Cleanup(func() {
		w.Client.Close()
		for _, k := range keepers {
			k.Close()
		}
		for _, k := range keepers {
			if err := k.Clear(); err != nil {
				w.t.Errorf("clear up: %v", err)
			}
			if w.t.Failed() {
				w.t.Logf("the server said:\n%s", k.Tail())
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// live is the life that listens now.
func (w *world) live() *rig.Life {
	w.t.Helper()
	l, err := w.Live(w.ctx)
	must(w.t, err)
	return l
}

// kill is kill -9. The next life begins once between, if not nil, has returned.
func (w *world) kill(between func()) {
	w.t.Helper()
	w.after(between, (*rig.Life).Kill)
}

// after ends the server with end. The next life begins once between, if not
// nil, has returned.
func (w *world) after(between func(), end func(*rig.Life)) {
	w.t.Helper()
	done := make(chan struct{})
	w.lull.set(func() {
		defer close(done)
		if between != nil {
			between()
		}
	})
	end(w.live())
	<-done
	w.live()
}

// cli runs a command of the binary and returns what it printed.
func (w *world) cli(args ...string) string {
	w.t.Helper()
	cmd := w.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("dormouse %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

func (w *world) command(args ...string) *exec.Cmd {
	return exec.CommandContext(w.ctx, w.Binary.Server, append(args, "--data", w.Data)...)
}

// gate is a shell command that waits until open is called.
func (w *world) gate() (wait string, open func()) {
	w.t.Helper()
	path := filepath.Join(w.witness.Dir, fmt.Sprintf("gate%d", time.Now().UnixNano()))
	return "until [ -e " + path + " ]; do sleep 0.01; done", func() { must(w.t, os.WriteFile(path, nil, 0o600)) }
}

// until waits for a fact outside the server.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for !ok() {
		if err := sleep.For(w.ctx, 2*time.Millisecond); err != nil {
			w.t.Fatalf("waiting until %s: %v", what, err)
		}
	}
}

// actor is a session whose life is judged when the test ends.
type actor struct {
	*rig.Session
	w      *world
	tag    string
	nonces int

	answers []oracle.Answer
}

// options are those of a session to be made.
type options map[string]any

// cold sessions start no sandbox until they need one.
var cold = options{"warm": false}

// create makes a session and follows it. Whatever the test does with it, the
// oracle looks at it in the end.
func (w *world) create(o options) *actor {
	w.t.Helper()
	a := w.createUnseen(o)
	w.t.Cleanup(func() {
		if !w.t.Failed() {
			a.judge()
		}
	})
	return a
}

// createUnseen makes a session and follows it. It may write where no witness looks.
func (w *world) createUnseen(o options) *actor {
	w.t.Helper()
	a := &actor{w: w, tag: fmt.Sprintf("%s-%d", strings.ToLower(w.t.Name()), time.Now().UnixNano())}
	a.tag = strings.Map(func(r rune) rune {
		if r == '/' {
			return '-'
		}
		return r
	}, a.tag)
	s, err := w.Create(w.ctx, a.tag, o, "")
	must(w.t, err)
	a.Session = s
	a.Follow(w.ctx, true)
	w.t.Cleanup(func() { a.Follower.Close() })
	return a
}

// script is a prompt of this session.
func (a *actor) script(steps ...rig.Step) string { return rig.Script(a.tag, steps...) }

// marked is a command that leaves a mark before and after another command.
func (a *actor) marked(command string) string {
	a.nonces++
	n := fmt.Sprintf("n%d", a.nonces)
	return a.w.witness.Mark(n, "begin") + "; " + command + "; " + a.w.witness.Mark(n, "end")
}

// send sends a prompt and returns its id once it is accepted.
func (a *actor) send(clientID, content string) dormouse.EventID {
	a.w.t.Helper()
	must(a.w.t, a.Prompt(a.w.ctx, clientID, content))
	return dormouse.PromptID(a.ID, clientID)
}

// show is where the session stands.
func (a *actor) show() rig.Shown {
	a.w.t.Helper()
	shown, err := a.Show(a.w.ctx)
	must(a.w.t, err)
	return shown
}

// phase waits for the session to be in one of the phases.
func (a *actor) phase(phases ...dormouse.Phase) rig.Shown {
	a.w.t.Helper()
	shown, err := a.Until(a.w.ctx, func(s rig.Shown) bool { return slices.Contains(phases, s.Phase) })
	if err != nil {
		a.w.t.Fatalf("waiting for %v: %v", phases, err)
	}
	return shown
}

// rests waits until nothing more is to be done.
func (a *actor) rests() rig.Shown {
	a.w.t.Helper()
	shown, err := a.Idle(a.w.ctx)
	if err != nil {
		a.w.t.Fatalf("waiting for rest: %v; the follower saw:\n%s", err, types(a.Follower.Seen()))
	}
	return shown
}

// log is everything the session knows.
func (a *actor) log() []dormouse.Event {
	a.w.t.Helper()
	log, err := a.Events(a.w.ctx)
	must(a.w.t, err)
	return log
}

// sees waits for the n-th event of a type.
func (a *actor) sees(t dormouse.EventType, n int) dormouse.Event {
	a.w.t.Helper()
	for {
		changed := a.Follower.Changed()
		if found := only(a.Follower.Seen(), t); len(found) >= n {
			return found[n-1]
		}
		select {
		case <-changed:
		case <-a.w.ctx.Done():
			a.w.t.Fatalf("waiting for %s number %d: %v; the log:\n%s", t, n, context.Cause(a.w.ctx), types(a.Follower.Seen()))
		}
	}
}

// effects counts the marks that commands have left.
func (a *actor) effects(mark string) int {
	a.w.t.Helper()
	all, err := a.w.witness.Effects()
	must(a.w.t, err)
	n := 0
	for _, e := range all {
		if e.Mark == mark {
			n++
		}
	}
	return n
}

// begun waits until n commands have left their first mark.
func (a *actor) begun(n int) {
	a.w.t.Helper()
	a.w.until(fmt.Sprintf("%d commands have begun", n), func() bool { return a.effects("begin") >= n })
}

// only are the events of one type.
func only(log []dormouse.Event, t dormouse.EventType) []dormouse.Event {
	var found []dormouse.Event
	for _, e := range log {
		if e.Type == t {
			found = append(found, e)
		}
	}
	return found
}

// types formats a log for people.
func types(log []dormouse.Event) string {
	var b strings.Builder
	for _, e := range log {
		fmt.Fprintf(&b, "%d %s %s\n", e.Seq, e.Type, e.Payload)
	}
	return b.String()
}

// place is where the first event of a type stands, -1 if there is none.
func place(log []dormouse.Event, t dormouse.EventType) int {
	return slices.IndexFunc(log, func(e dormouse.Event) bool { return e.Type == t })
}

// words is the text of a message, a prompt or a tool result.
func words(e dormouse.Event) string {
	var b strings.Builder
	for _, block := range rig.Decode[dormouse.Message](e).Content {
		b.WriteString(block.Text)
	}
	return b.String()
}

// judge holds the session against what it promised and what really happened.
func (a *actor) judge() {
	a.w.t.Helper()
	a.rests()
	e := oracle.Evidence{Acks: a.Acks(), All: true, Answer: a.answers, Slack: a.w.slack, Untimed: a.w.untimed, Damaged: a.w.damaged, Relayed: a.w.Store.Shared()}
	a.readAtRest(&e)
	catchUp, cancel := context.WithTimeout(a.w.ctx, 10*time.Second)
	defer cancel()
	end := e.Log[len(e.Log)-1].Seq
	_ = a.Follower.Reaches(catchUp, end) // what it has not seen by now is a gap
	e.Followed, e.Texts, e.Errs = a.Follower.Seen(), a.Follower.Texts(), a.Follower.Errs()
	e.Followed = slices.DeleteFunc(e.Followed, func(e dormouse.Event) bool { return e.Seq > end }) // came since
	e.Calls = a.w.models.Account(a.tag).Calls()
	all, err := a.w.witness.Effects()
	must(a.w.t, err)
	for _, x := range all { // those of other sessions are judged with them
		if slices.ContainsFunc(e.Rows.Ops, func(o dormouse.OpRecord) bool { return o.ID == x.Op }) {
			e.Effects = append(e.Effects, x)
		}
	}
	if e.Writes, err = a.w.witness.Writes(); err != nil {
		a.w.t.Fatal(err)
	}
	if found := oracle.Judge(e); !found.OK() {
		a.w.t.Errorf("session %s:\n%s\nits log:\n%s", a.ID, found, types(e.Log))
	}
}

// readAtRest reads the log and what is shown of it at one instant: again, until
// nothing came in between.
func (a *actor) readAtRest(e *oracle.Evidence) {
	a.w.t.Helper()
	for {
		e.Log, e.Shown = a.log(), a.show()
		rows, err := a.Rows(a.w.ctx)
		must(a.w.t, err)
		e.Rows = rows
		if after := a.show(); len(e.Log) > 0 && e.Log[len(e.Log)-1].Seq == after.Seq {
			return
		}
		must(a.w.t, sleep.For(a.w.ctx, 2*time.Millisecond))
	}
}

// refused checks that a request was refused, and how.
func refused(t *testing.T, err error, status int, kind string) {
	t.Helper()
	r := rig.Refused(err)
	if r == nil || r.Status != status || r.Code != kind || r.Message == "" {
		t.Errorf("got %v, want a refusal with %d %s and a message", err, status, kind)
	}
}
