package runner

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process inside a sandbox can play its runner. What a link holds of such an
// impostor, and for how long, is bounded however it behaves.

func listening(t *testing.T, heartbeat time.Duration) *Link {
	t.Helper()
	l, err := Listen(LinkOptions{
		Path: filepath.Join(t.TempDir(), "s"), Secret: "secret", Fence: Fence{Session: "sesn_1", Generation: 1, Epoch: 1}, Heartbeat: heartbeat,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dialed(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", l.opts.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func says(t *testing.T, c net.Conn, f Frame) {
	t.Helper()
	b, err := AppendFrame(nil, f)
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		t.Error(err)
	}
}

// impostor plays the runner of a link, and reads nothing that it is sent.
func impostor(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c := dialed(t, l)
	says(t, c, Frame{Kind: KindHello, Hello: &Hello{Protocol: Protocol, Secret: "secret"}})
	if _, err := ReadFrame(c, FromServer()); err != nil {
		t.Fatal(err)
	}
	says(t, c, Frame{Kind: KindBound})
	<-l.bound
	return c
}

// asked is a request whose answer is never taken.
func asked(t *testing.T, l *Link, live bool) *pending {
	t.Helper()
	p, err := l.register(Frame{Kind: KindAsk, Op: "op_1"}, live)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so within 20 s: %s", what)
		}
	}
}

func TestOutputThatNobodyTakesIsHeldUpToABound(t *testing.T) {
	l := listening(t, time.Minute)
	const readers = 4
	var all []*pending
	for range readers { // each of which could be behind by half of the bound
		all = append(all, asked(t, l, true))
	}
	held := func() (n int) {
		for _, p := range all {
			n += len(p.output) * maxOutput
		}
		return n
	}
	flood := func() {
		for range outputDepth {
			for _, p := range all {
				l.deliver(Frame{Kind: KindOutput, ID: p.id, Output: make([]byte, maxOutput)}, 0)
			}
		}
	}
	flood()
	if n := held(); n != maxUnreadOutput || l.unreadOutput != n {
		t.Errorf("%d bytes are held and %d counted, where %d may be", n, l.unreadOutput, maxUnreadOutput)
	}
	// What is taken, or left behind, makes room for as much and no more.
	l.releaseOutput(<-all[0].output)
	l.unregister(all[1], KindAsk)
	all = append(all[:1], all[2:]...)
	flood()
	if n := held(); n != maxUnreadOutput || l.unreadOutput != n {
		t.Errorf("then %d bytes are held and %d counted, where %d may be", n, l.unreadOutput, maxUnreadOutput)
	}
}

func TestAnswersThatNobodyTakesAreHeldUpToABound(t *testing.T) {
	l := listening(t, time.Minute)
	c := impostor(t, l)
	whole := make([]byte, FromRunner().Body)
	const answers = linkBudget/(4<<20) + 2
	var all []*pending
	for range answers {
		all = append(all, asked(t, l, false))
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, p := range all {
			says(t, c, Frame{Kind: KindReply, ID: p.id, Report: &Report{Op: "op_1", State: Finished, Result: &Result{Output: whole}}})
		}
	}()
	left := func() int {
		l.budget.mu.Lock()
		defer l.budget.mu.Unlock()
		return l.budget.left
	}
	came := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range all {
			n += len(p.answer)
		}
		return n
	}
	const fit = linkBudget/(4<<20) - 1 // each takes a little more than what is in it
	eventually(t, "as many came as may be held", func() bool { return came() == fit })
	if n := left(); n < 0 || n > linkBudget-fit*len(whole) {
		t.Errorf("%d bytes are left of the budget", n)
	}
	select {
	case <-sent:
		t.Error("everything was read though nobody takes it")
	case <-time.After(50 * time.Millisecond): // what is not held is not read either
	}
	for i, p := range all {
		eventually(t, "the next one comes when one was taken", func() bool { return len(p.answer) == 1 })
		if n := came(); n > fit {
			t.Errorf("%d answers are held after %d were taken", n, i)
		}
		<-p.answer
		l.unregister(p, KindAsk)
	}
	<-sent
	eventually(t, "everything was given back, and nothing twice", func() bool { return left() == linkBudget })
	// Nor does it help to answer what was not asked.
	for range 2 * answers {
		says(t, c, Frame{Kind: KindReply, ID: 1 << 40, Report: &Report{Op: "op_1", State: Finished, Result: &Result{Output: whole}}})
	}
	eventually(t, "what nobody asked for is not held", func() bool { return left() == linkBudget })
}

func TestOnlySoManyStrangersAreListenedTo(t *testing.T) {
	l := listening(t, time.Minute)
	for range maxHandshakes {
		dialed(t, l)
	}
	eventually(t, "all are waited for", func() bool { return len(l.handshakes) == maxHandshakes })
	one := dialed(t, l)
	_ = one.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := one.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one more is listened to: %d, %v", n, err)
	}
}

func TestAStrangerWhoKeepsTalkingHasOnlySoLong(t *testing.T) {
	const heartbeat = 100 * time.Millisecond
	l := listening(t, heartbeat)
	c := dialed(t, l)
	// Each byte restarts the read deadline, and the frame never ends.
	b, err := AppendFrame(nil, Frame{Kind: KindHello, Hello: &Hello{Protocol: Protocol, Secret: strings.Repeat("x", FromUnauthenticated().Head/2)}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 * maxMissedHeartbeats * 4 {
		if _, err := c.Write(b[i : i+1]); err != nil {
			return // it was turned away
		}
		time.Sleep(heartbeat / 4)
	}
	t.Error("he still talks after ten times as long")
}
