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
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// stream opens a stream that must open.
func stream(t testing.TB, l *runner.Link, s runner.Stream) *runner.Conn {
	t.Helper()
	c, err := l.Open(deadline(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// ends reads c until it ends.
func ends(t testing.TB, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the stream did not end")
	}
}

func watching(path string) runner.Stream {
	return runner.Stream{Watch: &runner.Watch{Path: path}}
}

func TestStreamThatNoRunnerCouldOpenIsNotAskedFor(t *testing.T) {
	r := newRig(t)
	l := r.listen(t, fence(1, 1)) // and would wait for a runner
	for name, s := range map[string]runner.Stream{
		"nothing":             {},
		"two things":          {Port: &runner.PortStream{Port: 1}, Watch: &runner.Watch{Path: "."}},
		"no port":             {Port: &runner.PortStream{}},
		"no path":             {Tree: &runner.Tree{}},
		"half a path":         {Watch: &runner.Watch{Path: "a\x00b"}},
		"no terminal":         {Terminal: &runner.Terminal{}},
		"a strange terminal":  {Terminal: &runner.Terminal{ID: "a b"}},
		"a long path":         {Watch: &runner.Watch{Path: strings.Repeat("x", 1<<16)}},
		"a long command":      {Terminal: &runner.Terminal{ID: "a", Command: make([]string, 1000)}},
		"a strange variable":  {Terminal: &runner.Terminal{ID: "a", Env: []string{"A=\x00"}}},
		"a strange directory": {Terminal: &runner.Terminal{ID: "a", Dir: "\x00"}},
	} {
		if _, err := l.Open(deadline(t), s); !errors.Is(err, dormouse.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStreamOutlivesTheLinksConnection(t *testing.T) {
	r := newRig(t)
	r.run(t)
	l := r.link(t, fence(1, 1))
	changes := stream(t, l, watching("."))
	// Another connection takes the first one's place, and is gone.
	c := stranger(t, r)
	send(t, c, hello(func(*runner.Hello) {}))
	if _, err := runner.ReadFrame(c, runner.FromServer()); err != nil {
		t.Fatal(err)
	}
	send(t, c, runner.Frame{Kind: runner.KindBound})
	_ = c.Close()
	do(t, l, exec("touch file"))
	sees(t, changes, runner.Change{Path: "file", Op: runner.Created})
}

func TestStreamEndsWithItsLink(t *testing.T) {
	r, l := open(t)
	c := stream(t, l, watching("."))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ends(t, c)
	if _, err := l.Open(deadline(t), watching(".")); !errors.Is(err, runner.ErrClosed) {
		t.Errorf("opened after that: %v", err)
	}
	do(t, r.link(t, fence(1, 2)), exec("true"))
}

func TestStreamEndsWhenANewerEpochBinds(t *testing.T) {
	r, older := open(t)
	term := stream(t, older, runner.Stream{Terminal: &runner.Terminal{ID: "t", Command: []string{"cat"}}})
	put := stream(t, older, runner.Stream{Tree: &runner.Tree{Path: "late", Put: true}})
	newer := r.link(t, fence(1, 2))
	ends(t, term)
	if _, err := put.PutTree(bytes.NewReader(archive(t, file("late", "x")))); err == nil {
		t.Error("a tree was put under the older epoch")
	}
	if names := mustGlob(t, filepath.Join(r.workspace, "late/*")); len(names) > 0 {
		t.Errorf("put under the older epoch: %v", names)
	}
	if _, err := older.Open(deadline(t), watching(".")); !errors.Is(err, runner.ErrStale) {
		t.Errorf("opened under the older epoch: %v", err)
	}
	// The terminal itself lives, with the stream that attaches now.
	again := stream(t, newer, runner.Stream{Terminal: &runner.Terminal{ID: "t"}})
	types(t, again, "hello\n")
	shows(t, again, "hello")
}

// idle is a stream that costs nothing and ends only when it is closed.
var idle = runner.Stream{Tree: &runner.Tree{Path: ".", Put: true}}

func TestStreamThatIsGivenUpIsForgotten(t *testing.T) {
	_, l := open(t)
	why := errors.New("changed my mind")
	for i := range 400 { // more than a runner opens
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(i)*10*time.Microsecond, why)
		c, err := l.Open(ctx, idle)
		cancel()
		switch {
		case err == nil:
			_ = c.Close()
		case !errors.Is(err, why) && !errors.Is(err, dormouse.ErrConflict): // it may be behind
			t.Fatal(err)
		}
	}
	eventually(t, "the runner has room for one", func() bool {
		c, err := l.Open(deadline(t), idle)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func TestRunnerOpensOnlySoManyStreams(t *testing.T) {
	_, l := open(t)
	var first *runner.Conn
	for i := 0; ; i++ {
		c, err := l.Open(deadline(t), idle)
		if errors.Is(err, dormouse.ErrConflict) {
			break
		}
		if err != nil || i > 1000 {
			t.Fatalf("stream %d: %v", i, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		first = c
	}
	_ = first.Close()
	eventually(t, "there is room again", func() bool {
		c, err := l.Open(deadline(t), idle)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func TestStreamOpensAfterADeadServerTookThePlace(t *testing.T) {
	r, l := open(t)
	// A killed process leaves one behind: a socket without a listener.
	other := filepath.Join(r.dir, "other")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: other, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	if err := os.Rename(other, r.socket); err != nil {
		t.Fatal(err)
	}
	stream(t, l, idle)
	do(t, l, exec("true"))
}

// named is the hello of a stream's connection.
func named(id string, change func(*runner.Hello)) runner.Frame {
	f := hello(change)
	f.Kind, f.StreamID = runner.KindStream, id
	return f
}

func TestConnectionForNoStreamIsRefused(t *testing.T) {
	r, l := open(t)
	c := stranger(t, r)
	send(t, c, named("nobody's", func(*runner.Hello) {}))
	if f, err := runner.ReadFrame(c, runner.FromServer()); err != nil || f.Kind != runner.KindRefused {
		t.Errorf("was answered %+v, %v", f, err)
	}
	ends(t, c)
	c = stranger(t, r)
	send(t, c, named("nobody's", func(h *runner.Hello) { h.Secret = "guess" }))
	if b, err := io.ReadAll(c); len(b) > 0 {
		t.Errorf("without the secret it was answered %q, %v", b, err)
	}
	do(t, l, exec("true"))
}

// An impostor answers an open in ways in which no runner does.
func TestRunnerThatMakesNoConnectionIsNotBelieved(t *testing.T) {
	r := newRig(t)
	l := r.listen(t, fence(1, 1))
	c := stranger(t, r)
	send(t, c, hello(func(*runner.Hello) {}))
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
	next()
	send(t, c, runner.Frame{Kind: runner.KindBound})

	type opened struct {
		conn *runner.Conn
		err  error
	}
	begin := func() (runner.Frame, chan opened) {
		done := make(chan opened, 1)
		go func() {
			c, err := l.Open(deadline(t), watching("."))
			done <- opened{c, err}
		}()
		return next(), done
	}
	f, done := begin()
	send(t, c, runner.Frame{Kind: runner.KindReply, ID: f.ID})
	if o := <-done; !errors.Is(o.err, dormouse.ErrInvalid) {
		t.Errorf("answered without a connection: %v", o.err)
	}

	// The second connection with one name has no stream, and bytes that come
	// before they are asked for are not taken.
	f, done = begin()
	early := stranger(t, r)
	b, err := runner.AppendFrame(nil, named(f.StreamID, func(*runner.Hello) {}))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = early.Write(append(b, "early"...))
	ends(t, early)
	conn := stranger(t, r)
	send(t, conn, named(f.StreamID, func(*runner.Hello) {}))
	if f, err := runner.ReadFrame(conn, runner.FromServer()); err != nil || f.Kind != runner.KindBound {
		t.Fatalf("the stream was answered %+v, %v", f, err)
	}
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	second := stranger(t, r)
	send(t, second, named(f.StreamID, func(*runner.Hello) {}))
	if f, err := runner.ReadFrame(second, runner.FromServer()); err != nil || f.Kind != runner.KindRefused {
		t.Errorf("the second of one name was answered %+v, %v", f, err)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(o.conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	_ = o.conn.Close()
	_ = c.Close()
}

func TestStreamOpensThroughACrowdOfStrangers(t *testing.T) {
	r, l := open(t)
	for range 100 {
		stranger(t, r)
	}
	stream(t, l, watching("."))
}

func FuzzStreamHello(f *testing.F) {
	r := newRig(f)
	l := r.listen(f, fence(1, 1))
	seed := func(frame runner.Frame) {
		b, err := runner.AppendFrame(nil, frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	seed(named("x", func(*runner.Hello) {}))
	seed(named("", func(*runner.Hello) {}))
	seed(named(strings.Repeat("x", 1000), func(h *runner.Hello) { h.Secret = "guess" }))
	seed(runner.Frame{Kind: runner.KindStream, StreamID: "x"})
	f.Fuzz(func(t *testing.T, b []byte) {
		// One waits all the while, and no server knows of it.
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan error, 1)
		go func() { _, err := l.Open(ctx, watching(".")); opened <- err }()
		c, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = c.Write(b)
		_ = c.(*net.UnixConn).CloseWrite()
		ends(t, c)
		_ = c.Close()
		cancel()
		if err := <-opened; err == nil {
			t.Error("a stranger's connection was taken for the stream")
		}
	})
}

func TestQuiesceLeavesNoConnection(t *testing.T) {
	r, l := open(t)
	c := stream(t, l, watching("."))
	task := exec("while [ ! -e go ]; do sleep 0.01; done; echo late >late")
	start(t, l, task)
	if err := l.Quiesce(deadline(t)); err != nil {
		t.Fatal(err)
	}
	ends(t, c)
	if _, err := os.Lstat(r.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there: %v", err)
	}
	if _, err := l.Ask(deadline(t), task.Op); !errors.Is(err, runner.ErrQuiesced) {
		t.Errorf("asked after that: %v", err)
	}
	if err := l.Quiesce(deadline(t)); !errors.Is(err, runner.ErrQuiesced) {
		t.Errorf("quiesced again: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed after that: %v", err)
	}
	// It finds the next server, and has ended the op that no server waited for
	// any more.
	writeFile(t, r.workspace+"/go", "")
	next := r.link(t, fence(1, 2))
	if res := wait(t, next, task.Op); !res.Killed {
		t.Errorf("result: %+v", res)
	}
	if _, err := os.Stat(r.workspace + "/late"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it acted later: %v", err)
	}
}

func TestQuiesceWithoutARunnerKeepsItOut(t *testing.T) {
	r := newRig(t)
	l := r.listen(t, fence(1, 1))
	if err := l.Quiesce(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("unix", r.socket); err == nil {
		t.Error("somebody still listens")
	}
}

func TestQuiesceSaysWhenTheRunnerHoldsOn(t *testing.T) {
	r := newRig(t)
	l := r.listen(t, fence(1, 1))
	c := stranger(t, r)
	send(t, c, hello(func(*runner.Hello) {}))
	if _, err := runner.ReadFrame(c, runner.FromServer()); err != nil {
		t.Fatal(err)
	}
	send(t, c, runner.Frame{Kind: runner.KindBound})
	if err := l.Ready(deadline(t)); err != nil {
		t.Fatal(err)
	}
	why := errors.New("changed my mind")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
	defer cancel()
	if err := l.Quiesce(ctx); !errors.Is(err, why) {
		t.Errorf("quiesced: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenAndQuiesceAreHeldAgainstTheFence(t *testing.T) {
	r := newRig(t)
	r.run(t)
	_, ask := impostor(t, r)
	bound := fence(3, 7)
	if f := ask(runner.Frame{Kind: runner.KindBind, Fence: &bound}); f.Kind != runner.KindBound {
		t.Fatalf("bind: %+v", f)
	}
	s := watching(".")
	size := runner.Terminal{ID: "none", Rows: 1, Cols: 1}
	for _, kind := range []runner.Kind{runner.KindOpen, runner.KindQuiesce, runner.KindResize} {
		for name, test := range map[string]struct {
			fence *runner.Fence
			want  runner.Refusal
		}{
			"older epoch":   {new(fence(3, 6)), runner.RefusedStale},
			"other sandbox": {new(fence(4, 7)), runner.RefusedForeign},
			"none":          {nil, runner.RefusedInvalid},
		} {
			f := ask(runner.Frame{Kind: kind, ID: 1, Fence: test.fence, StreamID: "x", Stream: &s, Terminal: &size})
			if f.Refusal != test.want {
				t.Errorf("%s with %s was answered %+v", kind, name, f)
			}
		}
	}
}
