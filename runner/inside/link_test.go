//go:build linux

package inside_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func TestStartingTheSameOpTwiceActsOnce(t *testing.T) {
	r, l := open(t)
	c := exec("echo x >>acts")
	for range 5 {
		start(t, l, c)
	}
	wait(t, l, c.Op)
	start(t, l, c)
	if n := r.lines(t, "acts"); n != 1 {
		t.Errorf("acted %d times", n)
	}
}

func TestRequestCutOffIsSentAgainAndActsOnce(t *testing.T) {
	r := newRig(t)
	p := proxied(t, r)
	r.run(t)
	l := r.link(t, fence(1, 1))
	for range 5 {
		p.swallow(true)
		c := exec("echo x >>acts; sleep 0.05")
		before := r.lines(t, "acts")
		started := make(chan error, 1)
		go func() { started <- l.Start(deadline(t), c) }()
		eventually(t, "the command acts", func() bool { return r.lines(t, "acts") > before })
		p.swallow(false)
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		go p.cut()
		wait(t, l, c.Op)
	}
	if n := r.lines(t, "acts"); n != 5 {
		t.Errorf("five commands acted %d times", n)
	}
}

func TestNewServerReattachesToARunningCommand(t *testing.T) {
	r, first := open(t)
	c := exec("echo x >>acts; while [ ! -e go ]; do sleep 0.01; done; echo end")
	start(t, first, c)
	waited := make(chan error, 1)
	go func() { _, err := first.Wait(deadline(t), c.Op, nil); waited <- err }()

	// The first link is still there, as of a server that hangs.
	second := r.link(t, fence(1, 2))
	if state := ask(t, second, c.Op); state != runner.Running {
		t.Fatalf("the command is %s", state)
	}
	start(t, second, c)
	writeFile(t, r.workspace+"/go", "")
	if res := wait(t, second, c.Op); string(res.Output) != "end\n" || r.lines(t, "acts") != 1 {
		t.Errorf("result: %+v after acting %d times", res, r.lines(t, "acts"))
	}
	if err := <-waited; !errors.Is(err, runner.ErrStale) {
		t.Errorf("the first server was told %v", err)
	}
}

func TestOlderEpochIsRefusedAndActsNoMore(t *testing.T) {
	r, newer := open(t)
	_ = newer.Close()
	newer = r.link(t, fence(1, 5))
	older := r.listen(t, fence(1, 4))
	if err := older.Start(deadline(t), exec("echo x >>late")); !errors.Is(err, runner.ErrStale) {
		t.Errorf("start under the older epoch: %v", err)
	}
	if err := older.Ready(deadline(t)); !errors.Is(err, runner.ErrStale) {
		t.Errorf("ready under the older epoch: %v", err)
	}
	do(t, newer, exec("true"))
	if n := r.lines(t, "late"); n != 0 {
		t.Errorf("acted %d times", n)
	}

	t.Run("also by a runner that was started again", func(t *testing.T) {
		r.stop()
		_ = newer.Close()
		older := r.listen(t, fence(1, 4))
		r.run(t)
		if err := older.Ready(deadline(t)); !errors.Is(err, runner.ErrStale) {
			t.Errorf("ready under the older epoch: %v", err)
		}
	})
}

func TestOlderServerCannotBlockTheNewerOne(t *testing.T) {
	r := newRig(t)
	p := proxied(t, r)
	r.run(t)
	newer := r.link(t, fence(1, 5))
	// Without a runner either takes the socket's place from the other. It is cut
	// off until it comes back to the older one first.
	older := r.listen(t, fence(1, 4))
	told := make(chan error, 1)
	go func() { told <- older.Ready(deadline(t)) }()
	eventually(t, "the runner meets the older one", func() bool {
		p.cut()
		select {
		case err := <-told:
			if !errors.Is(err, runner.ErrStale) {
				t.Errorf("ready under the older epoch: %v", err)
			}
			return true
		case <-time.After(heartbeat):
			return false
		}
	})
	do(t, newer, exec("true"))
}

// impostor is a server written by hand.
func impostor(t *testing.T, r *rig) (net.Conn, func(runner.Frame) runner.Frame) {
	t.Helper()
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	next := func() runner.Frame {
		for {
			f, err := runner.ReadFrame(c, runner.FromServer())
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind != runner.KindHeartbeat {
				return f
			}
		}
	}
	if f := next(); f.Kind != runner.KindHello || f.Hello.Secret != secret {
		t.Fatalf("expected a hello, got %+v", f)
	}
	var bound sync.Once
	return c, func(f runner.Frame) runner.Frame {
		send(t, c, f)
		f = next()
		bound.Do(func() { keepBeating(t, c) })
		return f
	}
}

// keepBeating says that a server is there, for however long it takes to ask.
func keepBeating(t *testing.T, c net.Conn) {
	t.Helper()
	b, err := runner.AppendFrame(nil, runner.Frame{Kind: runner.KindHeartbeat})
	if err != nil {
		t.Fatal(err)
	}
	var heartbeats sync.WaitGroup
	heartbeats.Go(func() {
		for ; err == nil; time.Sleep(heartbeat) {
			_, err = c.Write(b)
		}
	})
	t.Cleanup(func() { _ = c.Close(); heartbeats.Wait() })
}

func send(t *testing.T, w io.Writer, f runner.Frame) {
	t.Helper()
	b, err := runner.AppendFrame(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestEveryRequestIsHeldAgainstTheFence(t *testing.T) {
	r := newRig(t)
	r.run(t)
	_, ask := impostor(t, r)
	bound := fence(3, 7)
	if f := ask(runner.Frame{Kind: runner.KindBind, Fence: &bound}); f.Kind != runner.KindBound {
		t.Fatalf("bind: %+v", f)
	}
	other := bound
	other.Session = "sesn_other"
	for _, test := range []struct {
		name  string
		fence *runner.Fence
		want  runner.Refusal
	}{
		{"the same", new(fence(3, 7)), ""},
		{"newer epoch", new(fence(3, 9)), ""},
		{"epoch older than the newest met", new(fence(3, 8)), runner.RefusedStale},
		{"older generation", new(fence(2, 9)), runner.RefusedForeign},
		{"newer generation", new(fence(4, 9)), runner.RefusedForeign},
		{"other session", &other, runner.RefusedForeign},
		{"none", nil, runner.RefusedInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, kind := range []runner.Kind{runner.KindStart, runner.KindAsk, runner.KindWait, runner.KindKill, runner.KindTerminals, runner.KindPorts, runner.KindUsage, runner.KindEndTerminal} {
				c := exec("true")
				want := test.want
				if kind == runner.KindWait && want == "" {
					want = runner.RefusedNever
				}
				if f := ask(runner.Frame{Kind: kind, ID: 1, Fence: test.fence, Op: c.Op, Call: &c, Terminal: &runner.Terminal{ID: "none"}}); f.Refusal != want {
					t.Errorf("%s was answered %+v", kind, f)
				}
			}
		})
	}
}

func TestNewPairMakesTheRunnerForgetTheOldEpoch(t *testing.T) {
	r, first := open(t)
	_ = first.Close()
	do(t, r.link(t, fence(1, 9)), exec("true"))
	do(t, r.link(t, fence(2, 1)), exec("true"))
}

func TestForgottenOpWasNeverSeen(t *testing.T) {
	r, l := open(t)
	c := exec("head -c 200000 /dev/zero")
	do(t, l, c)
	l.Forget(c.Op)
	l.Forget(c.Op)
	if state := ask(t, l, c.Op); state != runner.NeverSeen {
		t.Errorf("asked: %s", state)
	}
	if _, err := l.Wait(deadline(t), c.Op, nil); !errors.Is(err, runner.ErrNeverSeen) {
		t.Errorf("waited: %v", err)
	}
	if left := mustGlob(t, filepath.Join(r.dir, "state/output/*")); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
	running := exec("sleep 1000")
	start(t, l, running)
	l.Forget(running.Op)
	if state := ask(t, l, running.Op); state != runner.Running {
		t.Errorf("a running op was forgotten: %s", state)
	}
}

func TestRunnerStartedAgainRemembersWhatItWasAsked(t *testing.T) {
	r, l := open(t)
	ended, cut := exec("echo x; head -c 200000 /dev/zero"), exec("echo x >>acts; sleep 1000")
	want := do(t, l, ended)
	start(t, l, cut)
	eventually(t, "the command acts", func() bool { return r.lines(t, "acts") > 0 })
	r.stop()
	// As if it had been killed: the call is recorded, the result is not, and the
	// next call is recorded in part.
	kept := journal(t, r)
	kept = kept[:strings.LastIndex(kept[:len(kept)-1], "\n")+1]
	writeFile(t, filepath.Join(r.dir, "state/ops"), kept+`{"op":"op_half","call":{"op":"op_half`)
	r.run(t)
	if diff := cmp.Diff(want, wait(t, l, ended.Op)); diff != "" {
		t.Errorf("result (-before +after):\n%s", diff)
	}
	start(t, l, cut)
	if res := wait(t, l, cut.Op); res.Error == "" || r.lines(t, "acts") != 1 {
		t.Errorf("cut off: %+v after acting %d times", res, r.lines(t, "acts"))
	}
	if state := ask(t, l, "op_half"); state != runner.NeverSeen {
		t.Errorf("recorded in part: %s", state)
	}
}

func TestJournalDoesNotGrowWithWhatIsForgotten(t *testing.T) {
	r, l := open(t)
	kept := do(t, l, write("first", "x"))
	for range 40 { // of 80 KB each
		c := exec("head -c 60000 /dev/zero")
		do(t, l, c)
		l.Forget(c.Op)
	}
	last := exec("echo last")
	do(t, l, last)
	ask(t, l, last.Op) // before it answers, the runner is told what to forget
	if n := len(journal(t, r)); n > 2<<20 {
		t.Errorf("journal has %d bytes", n)
	}
	r.stop()
	r.run(t)
	if res := wait(t, l, last.Op); string(res.Output) != "last\n" || kept.Error != "" {
		t.Errorf("result: %+v", res)
	}
}

func TestCallsOutlastALossOfTheRunnerButNotForEver(t *testing.T) {
	r := newRig(t)
	l, err := runner.Listen(runner.LinkOptions{Path: r.socket, Secret: secret, Fence: fence(1, 1), Heartbeat: heartbeat, ReconnectTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := l.Ask(deadline(t), "op_1"); !errors.Is(err, runner.ErrUnreachable) {
		t.Errorf("with nobody there: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	cancel(why)
	if _, err := l.Ask(ctx, "op_1"); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	r.run(t)
	if err := l.Ready(deadline(t)); err != nil {
		t.Fatal(err)
	}
	do(t, l, exec("true"))
	l.End(io.EOF)
	if _, err := l.Ask(deadline(t), "op_1"); !errors.Is(err, io.EOF) {
		t.Errorf("ended: %v", err)
	}
}

func TestWaitThatIsGivenUpLeavesTheCommandAlone(t *testing.T) {
	r, l := open(t)
	c := exec("while [ ! -e go ]; do sleep 0.01; done; echo end")
	start(t, l, c)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Wait(ctx, c.Op, func([]byte) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
	writeFile(t, r.workspace+"/go", "")
	if res := wait(t, l, c.Op); string(res.Output) != "end\n" {
		t.Errorf("result: %+v", res)
	}
}

func TestCallThatNoRunnerCouldCarryOutIsNotSent(t *testing.T) {
	_, l := open(t)
	for name, c := range map[string]runner.Call{
		"no id":        {Kind: dormouse.OpExec, Exec: &runner.Exec{}},
		"a path as id": {Op: "op_../../x", Kind: dormouse.OpExec, Exec: &runner.Exec{}},
		"wrong kind":   {Op: "op_1", Kind: dormouse.OpModel, Exec: &runner.Exec{}},
		"no arguments": {Op: "op_1", Kind: dormouse.OpWrite, Exec: &runner.Exec{}},
	} {
		if err := l.Start(deadline(t), c); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := l.Start(deadline(t), write("large", strings.Repeat("x", runner.MaxFrame))); !errors.Is(err, dormouse.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	do(t, l, exec("true"))
}

func TestSocketMayLieDeep(t *testing.T) {
	r := newRig(t)
	deep := filepath.Join(r.dir, strings.Repeat("deep/", 40))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	r.socket = filepath.Join(deep, "socket")
	r.dialled = r.socket
	r.run(t)
	do(t, r.link(t, fence(1, 1)), exec("true"))
	if names := mustGlob(t, filepath.Join(deep, "*")); len(names) != 1 {
		t.Errorf("beside the socket: %v", names)
	}
}

// stranger connects to a link as a process inside a sandbox might.
func stranger(t *testing.T, r *rig) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func hello(change func(*runner.Hello)) runner.Frame {
	h := runner.Hello{Protocol: runner.Protocol, Secret: secret}
	change(&h)
	return runner.Frame{Kind: runner.KindHello, Hello: &h}
}

func TestStrangerIsTurnedAwayAndDisturbsNobody(t *testing.T) {
	r, l := open(t)
	frame := func(f runner.Frame) []byte {
		b, err := runner.AppendFrame(nil, f)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"garbage":             bytes.Repeat([]byte{0xde, 0xad, 0xbe, 0xef}, 1<<16),
		"zeroes":              make([]byte, 1<<16),
		"text":                []byte("GET / HTTP/1.1\r\n\r\n"),
		"a huge length":       {0x7f, 0xff, 0xff, 0xff, '{'},
		"no hello":            frame(runner.Frame{Kind: runner.KindBound}),
		"an empty hello":      frame(runner.Frame{Kind: runner.KindHello}),
		"the wrong secret":    frame(hello(func(h *runner.Hello) { h.Secret = "guess" })),
		"no secret":           frame(hello(func(h *runner.Hello) { h.Secret = "" })),
		"a newer protocol":    frame(hello(func(h *runner.Hello) { h.Protocol++ })),
		"a long secret":       frame(hello(func(h *runner.Hello) { h.Secret = strings.Repeat("x", runner.FromUnauthenticated().Head) })),
		"nothing for a while": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := stranger(t, r)
			_, _ = c.Write(b) // may be cut off while it writes
			if got, err := io.ReadAll(c); len(got) > 0 {
				t.Errorf("was answered %q, %v", got, err)
			}
			do(t, l, exec("true"))
		})
	}
}

func TestCrowdOfStrangersKeepsTheRunnerOutOnlyForAWhile(t *testing.T) {
	r := newRig(t)
	l := r.listen(t, fence(1, 1))
	for range 100 {
		stranger(t, r)
	}
	r.run(t)
	do(t, l, exec("true"))
}

func TestRunnerThatConnectsAgainReplacesItsConnection(t *testing.T) {
	r, l := open(t)
	c := stranger(t, r)
	send(t, c, hello(func(*runner.Hello) {}))
	if f, err := runner.ReadFrame(c, runner.FromServer()); err != nil || f.Kind != runner.KindBind {
		t.Fatalf("bind: %+v, %v", f, err)
	}
	send(t, c, runner.Frame{Kind: runner.KindBound})

	// A runner that says nothing useful: no answer is believed that was not asked
	// for, and once it is silent the real one is back.
	go func() {
		for _, f := range []runner.Frame{
			{Kind: runner.KindReply, ID: 1 << 60},
			{Kind: runner.KindOutput, ID: 1, Output: make([]byte, 1<<20)},
			{Kind: "unheard-of"},
			{Kind: runner.KindStart},
		} {
			if b, err := runner.AppendFrame(nil, f); err == nil {
				_, _ = c.Write(b)
			}
		}
	}()
	do(t, l, exec("true"))
}

func TestAnswerThatMakesNoSenseIsAnError(t *testing.T) {
	r := newRig(t)
	l := r.listen(t, fence(1, 1))
	for name, reply := range map[string]runner.Frame{
		"nothing":        {},
		"no result":      {Report: &runner.Report{State: runner.Finished}},
		"no such state":  {Report: &runner.Report{State: "perhaps"}},
		"another op":     {Report: &runner.Report{Op: "op_other", State: runner.Running}},
		"strange reason": {Refusal: "because", Detail: strings.Repeat("x", 1<<17)},
	} {
		t.Run(name, func(t *testing.T) {
			c := stranger(t, r)
			send(t, c, hello(func(*runner.Hello) {}))
			if _, err := runner.ReadFrame(c, runner.FromServer()); err != nil {
				t.Fatal(err)
			}
			send(t, c, runner.Frame{Kind: runner.KindBound})
			asked := make(chan error, 1)
			go func() { _, err := l.Ask(deadline(t), "op_1"); asked <- err }()
			f, err := runner.ReadFrame(c, runner.FromServer())
			for err == nil && f.Kind != runner.KindAsk {
				f, err = runner.ReadFrame(c, runner.FromServer())
			}
			if err != nil {
				t.Fatal(err)
			}
			reply.Kind, reply.ID = runner.KindReply, f.ID
			send(t, c, reply)
			if err := <-asked; err == nil || len(err.Error()) > 1000 {
				t.Errorf("asked: %v", err)
			}
		})
	}
}

// TestAKillNeverOvertakesItsStart sends both at once, as a server does that is
// interrupted while it starts a command.
func TestAKillNeverOvertakesItsStart(t *testing.T) {
	r := newRig(t)
	r.run(t)
	c, ask := impostor(t, r)
	bound := fence(1, 1)
	if f := ask(runner.Frame{Kind: runner.KindBind, Fence: &bound}); f.Kind != runner.KindBound {
		t.Fatalf("bind: %+v", f)
	}
	for i := range uint64(1000) {
		call := runner.Call{Op: newOp(), Kind: dormouse.OpRead, Read: &runner.Read{Path: "."}}
		b, err := runner.AppendFrame(nil, runner.Frame{Kind: runner.KindStart, ID: 2*i + 1, Fence: &bound, Call: &call})
		if err != nil {
			t.Fatal(err)
		}
		if b, err = runner.AppendFrame(b, runner.Frame{Kind: runner.KindAsk, ID: 2*i + 2, Fence: &bound, Op: call.Op}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		for replies := 0; replies < 2; {
			f, err := runner.ReadFrame(c, runner.FromServer())
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind != runner.KindReply {
				continue
			}
			if replies++; f.Report != nil && f.Report.State == runner.NeverSeen {
				t.Fatalf("op %d was looked for before it was started", i)
			}
		}
	}
}

func TestForgettingIsHeldAgainstTheFence(t *testing.T) {
	r := newRig(t)
	r.run(t)
	c, ask := impostor(t, r)
	bound := fence(3, 7)
	if f := ask(runner.Frame{Kind: runner.KindBind, Fence: &bound}); f.Kind != runner.KindBound {
		t.Fatalf("bind: %+v", f)
	}
	call := exec("true")
	if f := ask(runner.Frame{Kind: runner.KindStart, ID: 1, Fence: &bound, Call: &call}); f.Refusal != "" {
		t.Fatalf("start: %+v", f)
	}
	if f := ask(runner.Frame{Kind: runner.KindWait, ID: 2, Fence: &bound, Op: call.Op}); f.Report == nil {
		t.Fatalf("wait: %+v", f)
	}
	state := func() runner.State {
		return ask(runner.Frame{Kind: runner.KindAsk, ID: 3, Fence: &bound, Op: call.Op}).Report.State
	}
	for _, wrong := range []*runner.Fence{new(fence(3, 6)), new(fence(2, 7)), new(fence(4, 7)), nil} {
		send(t, c, runner.Frame{Kind: runner.KindForget, Fence: wrong, Ops: []dormouse.OpID{call.Op}})
		if s := state(); s != runner.Finished {
			t.Errorf("under %+v it was forgotten: %s", wrong, s)
		}
	}
	send(t, c, runner.Frame{Kind: runner.KindForget, Fence: &bound, Ops: []dormouse.OpID{call.Op}})
	if s := state(); s != runner.NeverSeen {
		t.Errorf("under its own fence it was not: %s", s)
	}
}
