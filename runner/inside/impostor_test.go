//go:build linux

package inside_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// fake plays the runner as a process inside a sandbox can, and returns a link to
// it whose newest fence is kept.
func fake(t *testing.T, r *rig) (*runner.Link, runner.FenceFile, net.Conn) {
	t.Helper()
	known := runner.FenceFile(filepath.Join(r.dir, "reached.json"))
	if err := known.Raise(fence(1, 1)); err != nil {
		t.Fatal(err)
	}
	l, err := runner.Listen(runner.LinkOptions{Path: r.socket, Secret: secret, Fence: fence(1, 1), Known: known, Heartbeat: heartbeat, ReconnectTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := stranger(t, r)
	send(t, c, hello(func(*runner.Hello) {}))
	if _, err := runner.ReadFrame(c, runner.FromServer()); err != nil {
		t.Fatal(err)
	}
	return l, known, c
}

func stale() runner.Frame {
	return runner.Frame{Kind: runner.KindRefused, Refusal: runner.RefusedStale}
}

func TestAClaimToKnowANewerEpochIsHeldAgainstWhatTheHostKnows(t *testing.T) {
	r := newRig(t)
	l, known, c := fake(t, r)
	send(t, c, runner.Frame{Kind: runner.KindBound})
	send(t, c, stale())
	asked := make(chan error, 1)
	ask := func() { go func() { _, err := l.Ask(deadline(t), "op_1"); asked <- err }() }
	answer := func() {
		t.Helper()
		f, err := runner.ReadFrame(c, runner.FromServer())
		for err == nil && f.Kind != runner.KindAsk {
			f, err = runner.ReadFrame(c, runner.FromServer())
		}
		if err != nil {
			t.Fatal(err)
		}
		lie := stale()
		lie.Kind, lie.ID = runner.KindReply, f.ID
		send(t, c, lie)
	}
	ask()
	answer()
	if err := <-asked; errors.Is(err, runner.ErrStale) || !errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("a lie was answered with %v", err)
	}
	select {
	case <-l.Over():
		t.Fatal("a lie ended the link")
	default:
	}
	// Once a server has reached it under a newer epoch, the answer is true.
	if err := known.Raise(fence(1, 2)); err != nil {
		t.Fatal(err)
	}
	ask()
	answer()
	if err := <-asked; !errors.Is(err, runner.ErrStale) {
		t.Errorf("the truth was answered with %v", err)
	}
	<-l.Over()
}

func TestARunnerThatRefusesItsServerForALieIsNotReady(t *testing.T) {
	r := newRig(t)
	l, _, c := fake(t, r)
	send(t, c, stale())
	r.run(t) // the real one is let in all the same
	if err := l.Ready(deadline(t)); err != nil {
		t.Errorf("after a lie: %v", err)
	}
}

func TestWrongSecretsFillNoLog(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	l, err := runner.Listen(runner.LinkOptions{
		Path: r.socket, Secret: secret, Fence: fence(1, 1), Heartbeat: heartbeat, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		c := stranger(t, r)
		b, err := runner.AppendFrame(nil, hello(func(h *runner.Hello) { h.Secret = "guess\x1b[31m" }))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(b)
		_, _ = io.ReadAll(c) // until it is turned away
		_ = c.Close()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "\n"); n == 0 || n > 20 || !strings.Contains(log.String(), "count=") || strings.Contains(log.String(), "\x1b") {
		t.Errorf("%d lines:\n%.2000s", n, log.String())
	}
}

func TestWhatARunnerCallsItselfIsShownInPlainWords(t *testing.T) {
	r := newRig(t)
	l, _, c := fake(t, r)
	send(t, c, runner.Frame{Kind: runner.KindBound})
	listed := make(chan []runner.Port, 1)
	go func() { ports, _ := l.Ports(deadline(t)); listed <- ports }()
	f, err := runner.ReadFrame(c, runner.FromServer())
	for err == nil && f.Kind != runner.KindPorts {
		f, err = runner.ReadFrame(c, runner.FromServer())
	}
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, runner.Frame{Kind: runner.KindReply, ID: f.ID, Ports: []runner.Port{{Port: 80, Command: "\x1b[31mred\n" + strings.Repeat("x", 1000), PID: -1}}})
	ports := <-listed
	if len(ports) != 1 || strings.ContainsAny(ports[0].Command, "\x1b\n") || len(ports[0].Command) > 200 || ports[0].PID < 0 {
		t.Errorf("it is shown as %+v", ports)
	}
}

func TestAStrangersFirstFrameIsSmall(t *testing.T) {
	if b := runner.FromUnauthenticated(); b.Head > 8<<10 || b.Values > 128 || b.Body > 0 {
		t.Errorf("a stranger may send %+v", b)
	}
}
