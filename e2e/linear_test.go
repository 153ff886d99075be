package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

// linearSeed decides what clients ask for, and what is changed in the history to
// see that it matters.
const linearSeed = 7

// TestQueueIsLinearizable: many clients queue, repeat, cancel and read at once
// while a turn keeps the session busy and the server is killed. There must be one
// order of everything they did that explains everything they saw.
func TestQueueIsLinearizable(t *testing.T) {
	t.Parallel()
	const clients, each, kills = 5, 16, 2
	w := newWorld(t)
	h := &history{actor: w.create(nil), start: time.Now()}
	wait, open := w.gate()
	h.send("busy", h.script(rig.Bash(h.marked(wait)), rig.Say("at last")))
	h.begun(1)

	var asking sync.WaitGroup
	for c := range clients {
		rng := rand.New(rand.NewPCG(linearSeed, uint64(c)))
		asking.Go(func() {
			for range each {
				h.do(c, choice(rng))
			}
		})
	}
	for n := range kills {
		w.until("clients are at it", func() bool { return h.done() > (n+1)*clients*each/(kills+1) })
		w.kill(nil)
	}
	asking.Wait()
	for _, name := range []string{"y", "z"} { // so that there is an order at all
		h.do(0, step{verb: "prompt", name: name, body: "1"})
	}
	h.do(0, step{verb: "queue"})
	open()
	h.rests()
	h.do(0, step{verb: "taken"})

	whole := story(h.log(), false)
	check(t, whole, h.steps, porcupine.Ok)
	check(t, whole, staleRead(t, h.steps), porcupine.Illegal)
	check(t, whole, swappedOrder(t, h.steps), porcupine.Illegal)
}

// step is what a client asks for; names are the ids it gives to prompts.
type step struct{ verb, name, body string }

func choice(rng *rand.Rand) step {
	name, body := string(rune('a'+rng.IntN(12))), fmt.Sprint(rng.IntN(4)/3)
	switch n := rng.IntN(10); {
	case n < 5:
		return step{verb: "prompt", name: name, body: body}
	case n < 7:
		return step{verb: "cancel", name: name}
	case n < 8:
		return step{verb: "queue"}
	}
	return step{verb: "log"}
}

// seen is the answer: a status, or 0 if the server died under the request, and
// what was read.
type seen struct {
	status int
	read   string
}

// history is everything that clients did to one session.
type history struct {
	*actor
	start time.Time

	mu    sync.Mutex
	steps []porcupine.Operation // guarded by mu
}

func (h *history) done() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.steps)
}

// do does one step and notes what came of it.
func (h *history) do(client int, s step) {
	call := time.Since(h.start).Nanoseconds()
	got := h.ask(s)
	back := time.Since(h.start).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, porcupine.Operation{ClientId: client, Input: s, Call: call, Output: got, Return: back})
}

func (h *history) ask(s step) seen {
	var got seen
	var err error
	switch s.verb {
	case "prompt":
		got.status, err = h.Once(h.w.ctx, http.MethodPost, h.Path("/prompts"), options{"id": s.name, "content": s.name + "=" + s.body}, nil)
	case "cancel":
		got.status, err = h.Once(h.w.ctx, http.MethodDelete, h.Path("/queue/"+string(dormouse.PromptID(h.ID, s.name))), nil, nil)
	case "queue":
		var list struct {
			Prompts []struct {
				Status dormouse.PromptStatus `json:"status"`
				Text   string                `json:"text"`
			} `json:"prompts"`
		}
		got.status, err = h.Once(h.w.ctx, http.MethodGet, h.Path("/queue"), nil, &list)
		for _, p := range list.Prompts {
			if p.Status == dormouse.PromptIsQueued {
				got.read += p.Text + " "
			}
		}
	default:
		var page struct {
			Events []dormouse.Event `json:"events"`
		}
		got.status, err = h.Once(h.w.ctx, http.MethodGet, h.Path("/events?all=true&limit=1000"), nil, &page)
		got.read = story(page.Events, s.verb == "taken")
	}
	if errors.Is(err, rig.ErrCut) {
		return seen{}
	}
	if err != nil && rig.Refused(err) == nil {
		h.w.t.Errorf("%v: %v", s, err)
	}
	return got
}

// story describes what the log says of the queue, or in which order prompts were
// taken from it. The turn that keeps the session busy is no part of it.
func story(log []dormouse.Event, taken bool) string {
	names := make(map[dormouse.EventID]string)
	var b strings.Builder
	for _, e := range log {
		switch {
		case e.Type == dormouse.PromptQueued && len(names) == 0:
			names[e.ID] = "busy"
		case e.Type == dormouse.PromptQueued:
			names[e.ID], _, _ = strings.Cut(words(e), "=")
			if !taken {
				b.WriteString(words(e) + " ")
			}
		case e.Type == dormouse.PromptCancelled && !taken:
			for _, id := range rig.Decode[dormouse.Prompts](e).Prompts {
				b.WriteString("-" + names[id] + " ")
			}
		case e.Type == dormouse.UserMessage && taken && names[e.ID] != "busy":
			b.WriteString(words(e) + " ")
		}
	}
	return b.String()
}

// check holds a history against the law of the queue. Whatever order explains
// it must end in the whole log, so no order that leaves the log's own is tried.
func check(t *testing.T, whole string, steps []porcupine.Operation, want porcupine.CheckResult) {
	t.Helper()
	law := porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, in, out any) []any {
			log, _ := state.(string)
			s, _ := in.(step)
			got, _ := out.(seen)
			return slices.DeleteFunc(next(log, s, got), func(after any) bool {
				log, _ := after.(string)
				return !strings.HasPrefix(whole, log)
			})
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprint(in, " → ", out) },
	}
	model := law.ToModel()
	if got := porcupine.CheckOperationsTimeout(model, steps, 30*time.Second); got != want {
		t.Errorf("the history is %s, want %s:", got, want)
		for _, o := range steps {
			t.Logf("client %d, %d–%d µs: %s", o.ClientId, o.Call/1000, o.Return/1000, law.DescribeOperation(o.Input, o.Output))
		}
	}
}

// next is the law: the logs that may follow if a step saw what it saw. A log is
// "name=body" for what was queued and "-name" for what was cancelled; the queue,
// and what is known by name, follow from it.
func next(log string, s step, got seen) []any {
	body, queued := "", false
	var queue []string
	for e := range strings.FieldsSeq(log) {
		name, b, _ := strings.Cut(strings.TrimPrefix(e, "-"), "=")
		if e[0] == '-' {
			queue = slices.DeleteFunc(queue, func(q string) bool { return strings.HasPrefix(q, name+"=") })
		} else {
			queue = append(queue, e)
		}
		if name == s.name {
			queued = e[0] != '-'
			if queued {
				body = b
			}
		}
	}
	var changed any = log
	ok := false
	switch s.verb {
	case "prompt":
		switch body {
		case "": // new
			changed, ok = log+s.name+"="+s.body+" ", got.status == http.StatusAccepted
		case s.body: // again; two at once may both be told that they came first
			ok = got.status == http.StatusOK || got.status == http.StatusAccepted
		default:
			ok = got.status == http.StatusConflict
		}
	case "cancel":
		if ok = got.status == http.StatusNotFound; queued {
			changed, ok = log+"-"+s.name+" ", got.status == http.StatusOK
		}
	case "log":
		ok = got.read == log
	case "queue", "taken":
		ok = strings.TrimSpace(got.read) == strings.Join(queue, " ")
	}
	switch {
	case got.status == 0: // it was done or it was not
		return []any{log, changed}
	case ok:
		return []any{changed}
	}
	return nil
}

// staleRead exchanges what two reads of the log saw, one of which was over
// before the other began.
func staleRead(t *testing.T, steps []porcupine.Operation) []porcupine.Operation {
	t.Helper()
	var pairs [][2]int
	for i, a := range steps {
		for j, b := range steps {
			early, late := a.Output.(seen), b.Output.(seen) //nolint:forcetypeassert // all of them are
			if a.Input == (step{verb: "log"}) && a.Input == b.Input && early.status != 0 && late.status != 0 &&
				a.Return < b.Call && early.read != late.read {
				pairs = append(pairs, [2]int{i, j})
			}
		}
	}
	if len(pairs) == 0 {
		t.Fatal("no two reads to exchange")
	}
	pick := pairs[rand.New(rand.NewPCG(linearSeed, 0)).IntN(len(pairs))]
	steps = slices.Clone(steps)
	steps[pick[0]].Output, steps[pick[1]].Output = steps[pick[1]].Output, steps[pick[0]].Output
	return steps
}

// swappedOrder has the first two prompts taken in the other order.
func swappedOrder(t *testing.T, steps []porcupine.Operation) []porcupine.Operation {
	t.Helper()
	steps = slices.Clone(steps)
	last := &steps[len(steps)-1]
	got, _ := last.Output.(seen)
	taken := strings.Fields(got.read)
	if len(taken) < 2 {
		t.Fatalf("only %v were taken", taken)
	}
	taken[0], taken[1] = taken[1], taken[0]
	got.read = strings.Join(taken, " ")
	last.Output = got
	return steps
}
