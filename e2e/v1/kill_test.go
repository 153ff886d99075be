package v1_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/v1/site"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

var (
	killSeed = flag.Uint64("kill-seed", 1, "of the random kills")
	kills    = flag.Int("kills", 4, "how many random kills")
	every    = flag.Bool("every", false, "kill at every visit that is listed, not at the last alone")
)

// arms are where servers are killed that take events, work on them, and stream
// what comes of it. The number is the visit: the first is often the making of
// the session. All points are tried always, and further visits where there is time.
func arms() []rig.Arm {
	var all []rig.Arm
	for point, visits := range map[crash.Point][]int{ //nolint:exhaustive // others are reached by other scenarios
		crash.PromptParsed: {1, 2}, crash.PromptDeciding: {1, 3}, crash.PromptWriting: {1, 3}, crash.PromptCommitted: {1, 3}, crash.PromptAnswered: {1, 3},
		crash.LeaseClaiming: {1}, crash.LeaseClaimed: {1},
		crash.TurnStarting: {1, 2}, crash.TurnWritten: {1, 2}, crash.TurnFirstOp: {1}, crash.TurnBetween: {1, 2}, crash.TurnEnding: {1, 2}, crash.TurnEnded: {1}, crash.TurnNext: {1},
		crash.TurnBlocking: {1},
		crash.OpStarting:   {1, 3}, crash.OpStarted: {1, 2}, crash.OpSent: {1, 3}, crash.OpFirstByte: {1, 3}, crash.OpChunk: {1}, crash.OpResult: {1, 2}, crash.OpFinished: {1, 2},
		crash.OpAnswered: {1}, crash.InterruptDeciding: {1}, crash.InterruptCommitted: {1},
		crash.StoreFlushing: {2, 9, 25, 17}, crash.StoreFlushed: {2, 8, 24, 16},
	} {
		if !*every {
			visits = visits[len(visits)-1:]
		}
		for _, v := range visits {
			all = append(all, rig.Arm{Point: point, Visit: v})
		}
	}
	slices.SortFunc(all, func(a, b rig.Arm) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// TestKilledServersLoseNothing kills the server at every step of taking events
// and of working on them. A client that follows the rule for reconnecting sees
// every event once, and the session goes on.
func TestKilledServersLoseNothing(t *testing.T) {
	t.Parallel()
	binary, err := withPoints()
	if err != nil {
		t.Fatal(err)
	}
	for i, arm := range arms() {
		t.Run(arm.String(), func(t *testing.T) {
			t.Parallel()
			s, ctx := open(t, site.Options{Binary: binary, Arms: []rig.Arm{arm}})
			c := newClient(ctx, t, s, i%2 == 0)
			c.play("first")
			if len(s.Died()) == 0 || *every {
				c.play("second")
			}
			c.end()
			if len(s.Died()) == 0 {
				t.Errorf("the server never came to %s", arm)
			}
		})
	}
}

// TestServersKilledAtRandomLoseNothing kills at random instants.
func TestServersKilledAtRandomLoseNothing(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, site.Options{})
	c := newClient(ctx, t, s, false)
	r := rand.New(rand.NewPCG(*killSeed, 0))
	t.Logf("seed %d", *killSeed)
	stop := make(chan struct{})
	killed := make(chan int)
	go func() {
		n := 0
		for ; n < *kills; n++ {
			select {
			case <-stop:
				killed <- n
				return
			case <-time.After(time.Duration(300+r.IntN(2200)) * time.Millisecond):
			}
			if l, err := s.Live(ctx); err == nil {
				l.Kill()
			}
		}
		killed <- n
	}()
	n := -1
	for round := 0; n < 0 && !t.Failed(); round++ {
		c.play(fmt.Sprintf("round%d", round))
		select {
		case n = <-killed:
		default:
		}
	}
	close(stop)
	c.end()
	t.Logf("%d kills", n)
}

// client is one that keeps to the rules: it follows as it must, and sends again
// only what it has looked for and not found.
type client struct {
	*site.Site
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the test's own
	session  string
	follower *site.Follower
	keyed    bool // it names its requests, and need not look
	sent     []string
	cut      int
}

func newClient(ctx context.Context, t *testing.T, s *site.Site, keyed bool) *client {
	t.Helper()
	c := &client{Site: s, t: t, ctx: ctx, keyed: keyed}
	agent := c.make("/v1/agents", map[string]any{
		"name": "killed", "model": "claude-opus-5-5",
		"tools": []any{
			map[string]any{"type": "agent_toolset_20260401", "configs": []any{map[string]any{"name": "web_fetch", "enabled": false}, map[string]any{"name": "web_search", "enabled": false}}},
			map[string]any{"type": "custom", "name": "lookup", "description": "Looks a word up.", "input_schema": map[string]any{"type": "object"}},
		},
	})
	env := c.make("/v1/environments", map[string]any{"name": "killed"})
	c.session = c.make("/v1/sessions", map[string]any{"agent": agent, "environment_id": env})
	c.follower = s.Follow(ctx, c.session)
	t.Cleanup(c.follower.Close)
	return c
}

// make makes something; twice does no harm here.
func (c *client) make(path string, body any) string {
	c.t.Helper()
	var made struct{ ID string }
	for {
		err := c.Do(c.ctx, http.MethodPost, path, body, &made)
		var no *site.Refusal
		switch {
		case err == nil:
			return made.ID
		case errors.As(err, &no) && no.Status == http.StatusConflict && strings.HasSuffix(path, "environments"):
			body = map[string]any{"name": fmt.Sprintf("killed-%d", time.Now().UnixNano())} // it was made, and the response was lost
		case !again(err):
			c.t.Fatalf("make %s: %v", path, err)
		}
		c.pause()
	}
}

// again reports whether a request has no answer yet.
func again(err error) bool {
	var no *site.Refusal
	return errors.Is(err, rig.ErrCut) || errors.As(err, &no) && no.Status >= http.StatusInternalServerError
}

func (c *client) pause() {
	c.t.Helper()
	if err := sleep.For(c.ctx, 5*time.Millisecond); err != nil {
		c.t.Fatal(err)
	}
}

// message is one with a name of its own.
func (c *client) message(name string, steps ...rig.Step) map[string]any {
	text := rig.Script("killed", steps...) + " #" + name + "#"
	c.sent = append(c.sent, name)
	return map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": text}}}
}

// send sends events until they are taken. there looks for them where no answer
// came.
func (c *client) send(key string, there func([]json.RawMessage) bool, events ...any) {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"events": events})
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.Proxy.URL()+"/v1/sessions/"+c.session+"/events", strings.NewReader(string(body)))
		if err != nil {
			c.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if c.keyed {
			req.Header.Set("Idempotency-Key", key)
		}
		if err = c.Send(req, nil); err == nil {
			return
		}
		if !again(err) {
			c.t.Fatalf("send %s: %v", key, err)
		}
		c.cut++
		for !c.keyed {
			log, err := c.Log(c.ctx, c.session)
			if err == nil && there(log) {
				return
			}
			if err == nil {
				break
			}
			c.pause()
		}
		c.pause()
	}
}

// says looks for a message of that name.
func says(name string) func([]json.RawMessage) bool {
	return func(log []json.RawMessage) bool {
		return slices.ContainsFunc(log, func(raw json.RawMessage) bool {
			return strings.Contains(string(raw), "#"+name+"#") && strings.Contains(string(raw), `"user.message"`)
		})
	}
}

func (c *client) until(what string, enough func([]site.Event) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeoutCause(c.ctx, 2*time.Minute, errors.New("not in time"))
	defer cancel()
	if err := c.follower.Until(ctx, what, enough); err != nil {
		c.t.Fatal(err)
	}
}

// since is what came after a message, nil if it has not come.
func since(seen []site.Event, name string) []site.Event {
	for i, e := range seen {
		if e.Type == "user.message" && strings.Contains(e.Text(), "#"+name+"#") {
			return seen[i:]
		}
	}
	return nil
}

func idle(events []site.Event, reason string) bool {
	return slices.ContainsFunc(events, func(e site.Event) bool { return e.Idle(reason) })
}

// play sends what people send: something to do, more while that is done, a result
// that the agent waits for, and something else instead.
func (c *client) play(round string) {
	c.t.Helper()
	one, two, three, four := round+".one", round+".two", round+".three", round+".four"
	c.send(one, says(one), c.message(one, rig.Bash("sleep 0.1"), rig.Step{"text": "one is done, bit by bit", "chunks": 10, "chunk_delay_ms": 40}))
	c.send(two, says(two), c.message(two, rig.Use("lookup", map[string]any{"word": "cheese"}), rig.Say("two is done")))
	var call string
	c.until("the agent asks", func(seen []site.Event) bool {
		for _, e := range since(seen, two) {
			if e.Type == "agent.custom_tool_use" {
				call = e.ID
			}
		}
		return call != "" && idle(since(seen, two), "requires_action")
	})
	answered := func(log []json.RawMessage) bool {
		return slices.ContainsFunc(log, func(raw json.RawMessage) bool {
			return strings.Contains(string(raw), `"user.custom_tool_result"`) && strings.Contains(string(raw), call)
		})
	}
	c.send(round+".answer", answered, map[string]any{
		"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": []any{map[string]any{"type": "text", "text": "yellow"}},
	})
	c.until("it has its answer", func(seen []site.Event) bool { return idle(since(seen, two), "end_turn") })
	c.send(three, says(three), c.message(three, rig.Step{"text": strings.Repeat("and so on ", 20), "chunks": 20, "chunk_delay_ms": 100}, rig.Say("never")))
	c.until("it talks", func(seen []site.Event) bool {
		return slices.ContainsFunc(since(seen, three), func(e site.Event) bool { return e.Type == "span.model_request_start" })
	})
	c.send(four, says(four), map[string]any{"type": "user.interrupt"}, c.message(four, rig.Say("four is done")))
	c.until("all is done", func(seen []site.Event) bool { return idle(since(seen, four), "end_turn") })
}

// end waits for the end and compares what was seen with what is listed.
func (c *client) end() {
	c.t.Helper()
	c.Disarm()
	if err := c.Rest(c.ctx, c.session); err != nil {
		c.t.Fatal(err)
	}
	last := "after"
	c.send(last, says(last), c.message(last, rig.Say("still here")))
	c.until("the session goes on", func(seen []site.Event) bool { return idle(since(seen, last), "end_turn") })
	log, err := c.Log(c.ctx, c.session)
	if err != nil {
		c.t.Fatal(err)
	}
	seen, streams := c.follower.Seen()
	if len(seen) != len(log) {
		c.t.Errorf("%d events were seen, %d are listed", len(seen), len(log))
	}
	for i := range min(len(seen), len(log)) {
		if string(seen[i].Raw) != string(log[i]) {
			c.t.Errorf("event %d was seen as\n%s\nand is listed as\n%s", i, seen[i].Raw, log[i])
			break
		}
	}
	for _, name := range c.sent {
		n := 0
		for _, raw := range log {
			if says(name)([]json.RawMessage{raw}) {
				n++
			}
		}
		if n != 1 {
			c.t.Errorf("message %s is in the log %d times", name, n)
		}
	}
	c.t.Logf("%d events over %d streams, %d requests were cut", len(seen), streams, c.cut)
}
