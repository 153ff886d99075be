package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func TestScenario01CreateAnswersAtOnce(t *testing.T) {
	t.Parallel()
	open, gated := gatedRunner(t)
	w := newWorld(t, gated)
	var made rig.Shown
	status, err := w.Once(w.ctx, http.MethodPost, "/api/sessions", options{"title": "at once"}, &made)
	must(t, err)
	if status != http.StatusCreated || made.Phase != dormouse.PhaseCreating {
		t.Errorf("got %d %s, want 201 creating", status, made.Phase)
	}
	open()
	a := w.adopt(made.Session)
	a.sees(dormouse.SandboxStarted, 1)
	a.phase(dormouse.PhaseReady)
}

func TestScenario02PromptRunsWithoutWaitingForReady(t *testing.T) {
	t.Parallel()
	open, gated := gatedRunner(t)
	w := newWorld(t, gated)
	var made rig.Shown
	_, err := w.Once(w.ctx, http.MethodPost, "/api/sessions", options{"prompt": "hello"}, &made)
	must(t, err)
	a := w.adopt(made.Session)
	a.sees(dormouse.TurnEnded, 1) // while no sandbox is there
	a.phase(dormouse.PhaseCreating)
	open()
	a.phase(dormouse.PhaseReady)
	log := a.log()
	if place(log, dormouse.SessionStatusRunning) > place(log, dormouse.SandboxStarted) {
		t.Errorf("the session ran only once its sandbox was there:\n%s", types(log))
	}
}

func TestScenario04PromptWhileBusyIsQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, open := w.gate()
	first := a.send("first", a.script(rig.Bash(a.marked(wait)), rig.Say("first")))
	a.begun(1)
	second := a.send("second", a.script(rig.Say("second")))

	if got, want := a.queue(), []string{"processing " + string(first), "queued " + string(second)}; !slices.Equal(got, want) {
		t.Errorf("queue is %v, want %v", got, want)
	}
	if n := len(only(a.log(), dormouse.UserMessage)); n != 1 {
		t.Errorf("%d prompts are in the conversation, want the one that runs", n)
	}
	open()
	a.rests()
	if diff := cmp.Diff([]dormouse.EventID{first, second}, ids(only(a.log(), dormouse.UserMessage))); diff != "" {
		t.Error(diff)
	}
	if got := a.queue(); len(got) > 0 {
		t.Errorf("queue is still %v", got)
	}
}

func TestScenario05BurstRunsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	var sent []dormouse.EventID
	for i := range 5 {
		sent = append(sent, a.send(fmt.Sprint(i), a.script(rig.Say(fmt.Sprintf("answer %d", i)))))
	}
	a.rests()
	log := a.log()
	if diff := cmp.Diff(sent, ids(only(log, dormouse.UserMessage))); diff != "" {
		t.Error(diff)
	}
	for i, e := range only(log, dormouse.AgentMessage) {
		if want := fmt.Sprintf("answer %d", i); words(e) != want {
			t.Errorf("answer %d is %q, want %q", i, words(e), want)
		}
	}
}

func TestScenario06LogOrderIsTheOrderTheModelSees(t *testing.T) {
	t.Parallel()
	var ear ear
	w := newWorld(t, ear.listen(t))
	a := w.create(nil)
	wait, open := w.gate()
	a.send("0", a.script(rig.Bash(a.marked(wait)), rig.Say("the first answer")))
	a.begun(1)
	for i := range 3 { // while the turn is at work
		a.send(fmt.Sprint(i+1), a.script(rig.Say(fmt.Sprintf("answer %d", i+1))))
	}
	open()
	a.rests()
	var said []string
	for _, e := range a.log() {
		if e.Type == dormouse.UserMessage || e.Type == dormouse.AgentMessage {
			said = append(said, words(e))
		}
	}
	// The last request holds everything but its own answer.
	if diff := cmp.Diff(said[:len(said)-1], ear.last(t)); diff != "" {
		t.Errorf("the log and what the model was sent differ: %s", diff)
	}
}

func TestScenario07EveryRunningIsPairedWithOneIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.send("plain", a.script(rig.Say("plain")))
	a.rests()
	wait, open := w.gate()
	a.send("killed", a.script(rig.Bash(a.marked(wait)), rig.Say("killed")))
	a.begun(1)
	w.kill(nil)
	a.sees(dormouse.SessionStatusRescheduled, 1)
	open()
	a.rests()
	never, _ := w.gate()
	a.send("interrupted", a.script(rig.Bash(never)))
	a.sees(dormouse.AgentToolUse, 2)
	must(t, a.Command(w.ctx, "interrupt", nil))
	a.rests()
	a.send("failed", a.script(rig.Step{"error": 400}))
	a.rests()
	a.send("last", a.script(rig.Say("last")))
	a.rests()

	running, turns := false, 0
	for _, e := range a.log() {
		switch e.Type { //nolint:exhaustive // the others are no status
		case dormouse.SessionStatusRunning:
			if running {
				t.Errorf("event %d: running twice", e.Seq)
			}
			running, turns = true, turns+1
		case dormouse.SessionStatusIdle:
			if !running {
				t.Errorf("event %d: idle twice", e.Seq)
			}
			running = false
		}
	}
	if running || turns != 5 {
		t.Errorf("%d turns, running at the end: %v; want 5 and not", turns, running)
	}
}

func TestScenario09InterruptThatFlushesTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	wait, _ := w.gate()
	a.send("first", a.script(rig.Bash(a.marked(wait)), rig.Say("never said")))
	a.begun(1)
	second := a.send("second", a.script(rig.Say("never said")))
	third := a.send("third", a.script(rig.Say("never said")))
	a.MayCancel()
	must(t, a.Command(w.ctx, "interrupt", options{"flush_queue": true}))
	a.rests()
	log := a.log()
	cancelled := only(log, dormouse.PromptCancelled)
	if len(cancelled) != 1 || !slices.Equal(rig.Decode[dormouse.Prompts](cancelled[0]).Prompts, []dormouse.EventID{second, third}) {
		t.Errorf("cancelled are %s, want the two that were queued", types(cancelled))
	}
	if n := len(only(log, dormouse.UserMessage)); n != 1 {
		t.Errorf("%d prompts ran, want 1", n)
	}
	if n := a.effects("end"); n != 0 {
		t.Errorf("the interrupted command went on to its end")
	}
}

func TestScenario10InterruptOfNothingIsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	a.send("one", a.script(rig.Say("one")))
	a.rests()
	before := a.log()
	must(t, a.Command(w.ctx, "interrupt", nil))
	must(t, a.Command(w.ctx, "interrupt", options{"flush_queue": true}))
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Error(diff)
	}
}

func TestScenario12TerminatedSessionRefusesEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	a.send("one", a.script(rig.Say("one")))
	a.rests()
	must(t, a.Command(w.ctx, "terminate", nil))
	before := a.log()
	for _, c := range []struct {
		what string
		body any
	}{
		{"prompts", options{"content": "more"}},
		{"interrupt", options{"flush_queue": true}},
		{"retry", nil},
		{"continue", nil},
		{"hibernate", nil},
		{"wake", nil},
		{"answers", options{"tool_use_id": dormouse.PromptID(a.ID, "one"), "result": "allow"}},
	} {
		refused(t, a.Command(w.ctx, c.what, c.body), http.StatusConflict, "terminated")
	}
	// What was accepted was accepted, and is told again.
	status, err := w.Once(w.ctx, http.MethodPost, a.Path("/prompts"), options{"content": a.Acks()[0].Content, "id": "one"}, nil)
	if err != nil || status != http.StatusOK {
		t.Errorf("the prompt that ran, sent again: %d %v, want 200", status, err)
	}
	if diff := cmp.Diff(before, a.log()); diff != "" {
		t.Error(diff)
	}
}

func TestScenario13DestroyTwiceIsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(nil)
	a.phase(dormouse.PhaseReady)
	for range 2 {
		must(t, a.Command(w.ctx, "terminate", options{"reason": "enough"}))
	}
	a.rests()
	must(t, a.Command(w.ctx, "terminate", nil))
	log := a.log()
	for _, typ := range []dormouse.EventType{dormouse.SessionTerminated, dormouse.SessionStatusTerminated, dormouse.SandboxStopped} {
		if n := len(only(log, typ)); n != 1 {
			t.Errorf("%d events %s, want 1", n, typ)
		}
	}
	if pids := w.Runners(); len(pids) > 0 {
		t.Errorf("runners %v outlived their session", pids)
	}
}

func TestPromptSentAHundredTimesIsOnePrompt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.create(cold)
	content := a.script(rig.Say("once"))
	var sending sync.WaitGroup
	errs := make([]error, 100)
	for i := range errs {
		sending.Go(func() { errs[i] = a.Prompt(w.ctx, "same", content) })
		if i == 50 {
			w.kill(nil)
		}
	}
	sending.Wait()
	for _, err := range errs {
		must(t, err)
	}
	a.rests()
	log := a.log()
	for _, typ := range []dormouse.EventType{dormouse.PromptQueued, dormouse.UserMessage, dormouse.AgentMessage} {
		if n := len(only(log, typ)); n != 1 {
			t.Errorf("%d events %s, want 1", n, typ)
		}
	}
}

// adopt follows a session that was made without create.
func (w *world) adopt(id dormouse.SessionID) *actor {
	a := &actor{w: w, Session: &rig.Session{Client: w.Client, ID: id}}
	a.Follow(w.ctx, true)
	w.t.Cleanup(func() {
		defer a.Follower.Close()
		if !w.t.Failed() {
			a.judge()
		}
	})
	return a
}

// queue formats what the server lists as waiting and at work.
func (a *actor) queue() []string {
	a.w.t.Helper()
	rows, err := a.Rows(a.w.ctx)
	must(a.w.t, err)
	var all []string
	for _, p := range rows.Prompts {
		all = append(all, string(p.Status)+" "+string(p.ID))
	}
	return all
}

func ids(log []dormouse.Event) []dormouse.EventID {
	var all []dormouse.EventID
	for _, e := range log {
		all = append(all, e.ID)
	}
	return all
}

// ear hears what models are sent.
type ear struct {
	mu   sync.Mutex
	body []byte // guarded by mu; of the last request
}

// listen puts the ear between the server and its model.
func (e *ear) listen(t *testing.T) func(*rig.Server) {
	return func(s *rig.Server) {
		models, err := http.NewRequest(http.MethodGet, s.Model, nil)
		must(t, err)
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			e.mu.Lock()
			e.body = b
			e.mu.Unlock()
			out := r.Clone(r.Context())
			out.RequestURI, out.URL.Scheme, out.URL.Host = "", models.URL.Scheme, models.URL.Host
			out.Body = io.NopCloser(bytes.NewReader(b))
			res, err := http.DefaultTransport.RoundTrip(out)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			defer func() { _ = res.Body.Close() }()
			maps.Copy(w.Header(), res.Header)
			w.WriteHeader(res.StatusCode)
			_, _ = io.Copy(w, res.Body)
		}))
		t.Cleanup(proxy.Close)
		s.Model = proxy.URL
	}
}

// last is everything that was said in the last request.
func (e *ear) last(t *testing.T) []string {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	var request struct {
		Messages []struct {
			Content []struct {
				Type string `json:"type"`
				Text string `json:"text"`
			} `json:"content"`
		} `json:"messages"`
	}
	must(t, json.Unmarshal(e.body, &request))
	var said []string
	for _, m := range request.Messages {
		var b strings.Builder
		for _, part := range m.Content {
			b.WriteString(part.Text)
		}
		if b.Len() > 0 {
			said = append(said, b.String())
		}
	}
	return said
}
