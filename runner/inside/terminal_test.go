//go:build linux

package inside_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func terminal(id string, command ...string) runner.Stream {
	return runner.Stream{Terminal: &runner.Terminal{ID: id, Command: command}}
}

func types(t testing.TB, c io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// shows reads c until it has shown want, and returns all it showed.
func shows(t testing.TB, c net.Conn, want string) string {
	t.Helper()
	var seen bytes.Buffer
	buf := make([]byte, 1<<10)
	for !strings.Contains(seen.String(), want) {
		n, err := c.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("%q was not shown but %q, %v", want, seen.String(), err)
		}
	}
	return seen.String()
}

func reports(t testing.TB, l *runner.Link) map[string]runner.TerminalReport {
	t.Helper()
	all, err := l.Terminals(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string]runner.TerminalReport)
	for _, rep := range all {
		by[rep.ID] = rep
	}
	return by
}

func TestTerminalIsALoginShellOfItsOwn(t *testing.T) {
	r, l := open(t)
	c := stream(t, l, runner.Stream{Terminal: &runner.Terminal{ID: "t", Env: []string{"WHO=me"}, Rows: 30, Cols: 100}})
	types(t, c, "stty size; tty >tty; echo \"$WHO $TERM $PWD $(shopt -p login_shell)\" >said; echo do''ne\n")
	if seen := shows(t, c, "done\r\n"); !strings.Contains(seen, "30 100") {
		t.Errorf("its size: %q", seen)
	}
	if got, want := r.read(t, "said"), "me xterm-256color "+r.workspace+" shopt -s login_shell\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if !strings.HasPrefix(r.read(t, "tty"), "/dev/pts/") {
		t.Errorf("it is %q", r.read(t, "tty"))
	}
	types(t, c, "exit 7\n")
	ends(t, c)
	eventually(t, "its end is known", func() bool {
		exit := reports(t, l)["t"].Exit
		return exit != nil && *exit == 7
	})
}

func TestTerminalLivesOnWhenNobodyIsAttached(t *testing.T) {
	r, l := open(t)
	c := stream(t, l, terminal("t", "sh", "-c", "echo first; while read x; do echo got $x; done"))
	shows(t, c, "first\r\n")
	_ = c.Close()
	eventually(t, "it is detached", func() bool { return reports(t, l)["t"].Attached == 0 })
	// Also when the server is another.
	l = r.link(t, fence(1, 2))
	c = stream(t, l, terminal("t"))
	shows(t, c, "first\r\n")
	types(t, c, "word\n")
	shows(t, c, "got word")
	want := runner.TerminalReport{
		ID: "t", Command: []string{"sh", "-c", "echo first; while read x; do echo got $x; done"}, Rows: 24, Cols: 80, Attached: 1,
	}
	if diff := cmp.Diff(want, reports(t, l)["t"], cmpopts.IgnoreFields(want, "PID")); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	// Its input may end before its output does.
	_ = c.CloseWrite()
	other := stream(t, l, terminal("t"))
	types(t, other, "more\n")
	shows(t, c, "got more")
}

func TestEveryoneAttachedSeesTheSame(t *testing.T) {
	_, l := open(t)
	first := stream(t, l, terminal("t", "cat"))
	second := stream(t, l, terminal("t"))
	types(t, first, "one\n")
	for _, c := range []net.Conn{first, second} {
		shows(t, c, strings.Repeat("one\r\n", 2))
	}
	types(t, second, "two\n")
	for _, c := range []net.Conn{first, second} {
		shows(t, c, strings.Repeat("two\r\n", 2))
	}
}

func TestTerminalShowsWhatWasPrintedLast(t *testing.T) {
	r, l := open(t)
	c := stream(t, l, terminal("t", "sh", "-c", "stty -opost; echo begin; head -c 200000 /dev/zero | tr '\\0' x; printf end; touch printed; sleep 1000"))
	shows(t, c, "end")
	_ = c.Close()
	eventually(t, "all is printed", func() bool { return len(mustGlob(t, r.workspace+"/printed")) == 1 })
	again := stream(t, l, terminal("t"))
	if seen := shows(t, again, "end"); len(seen) != 64<<10 {
		t.Errorf("shown %d bytes", len(seen))
	}
}

func TestTerminalShowsEverythingBeforeItEnds(t *testing.T) {
	_, l := open(t)
	for i := range 20 {
		// The second holds the terminal open behind its back.
		for _, command := range []string{"head -c 300000 /dev/zero; echo last", "trap '' HUP; sleep 1000 & head -c 3000 /dev/zero; echo last"} {
			c := stream(t, l, terminal(fmt.Sprintf("t%d-%d", i, len(command)), "sh", "-c", command))
			if b, err := io.ReadAll(c); !bytes.HasSuffix(b, []byte("last\r\n")) {
				t.Fatalf("shown %d bytes, %v", len(b), err)
			}
		}
	}
}

func TestViewerThatStandsStillIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("waits out the patience with a viewer")
	}
	_, l := open(t)
	still := stream(t, l, terminal("t", "sh", "-c", "head -c 20000000 /dev/zero; echo last"))
	b, err := io.ReadAll(stream(t, l, terminal("t")))
	if !bytes.HasSuffix(b, []byte("last\r\n")) {
		t.Errorf("the other was shown %d bytes, %v", len(b), err)
	}
	ends(t, still)
}

func TestTerminalCanBeResizedAndEnded(t *testing.T) {
	r, l := open(t)
	c := stream(t, l, terminal("t", "bash", "-c", "trap 'stty size' WINCH; (setsid sh -c 'while :; do echo x >>beats; sleep 0.02; done' &); echo ready; while :; do read -t 0.05 x; done"))
	shows(t, c, "ready")
	if err := l.Resize(deadline(t), "t", 50, 120); err != nil {
		t.Fatal(err)
	}
	shows(t, c, "50 120")
	if rep := reports(t, l)["t"]; rep.Rows != 50 || rep.Cols != 120 {
		t.Errorf("report: %+v", rep)
	}
	eventually(t, "what it started acts", func() bool { return r.lines(t, "beats") > 0 })
	for range 2 {
		if err := l.EndTerminal(deadline(t), "t"); err != nil {
			t.Fatal(err)
		}
	}
	ends(t, c)
	r.settled(t, "beats")
	if rep := reports(t, l)["t"]; rep.Exit == nil || *rep.Exit < 128 {
		t.Errorf("report: %+v", rep)
	}
	if err := l.Resize(deadline(t), "t", 1, 1); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("resized after its end: %v", err)
	}
	if err := l.Resize(deadline(t), "t", 0, 1); err == nil {
		t.Error("resized to nothing")
	}
	// Its name is free again.
	shows(t, stream(t, l, terminal("t", "echo", "again")), "again")
}

func TestTerminalThatCannotBeStartedSaysWhy(t *testing.T) {
	_, l := open(t)
	for name, s := range map[string]runner.Stream{
		"no such command":   terminal("t", "/no/such/command"),
		"no such directory": {Terminal: &runner.Terminal{ID: "t", Dir: "nowhere"}},
	} {
		if _, err := l.Open(deadline(t), s); !errors.Is(err, dormouse.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := reports(t, l); len(all) > 0 {
		t.Errorf("there are %v", all)
	}
}

func TestOnlySoManyTerminalsLive(t *testing.T) {
	_, l := open(t)
	for i := range runner.MaxTerminals {
		stream(t, l, terminal(fmt.Sprintf("t%d", i), "cat"))
	}
	if _, err := l.Open(deadline(t), terminal("more", "cat")); !errors.Is(err, dormouse.ErrConflict) {
		t.Errorf("one more: %v", err)
	}
	if err := l.EndTerminal(deadline(t), "t0"); err != nil {
		t.Fatal(err)
	}
	stream(t, l, terminal("more", "cat"))
}

func TestTerminalsEndWithTheirRunner(t *testing.T) {
	r, l := open(t)
	c := stream(t, l, terminal("t", "sh", "-c", "trap '' HUP; while :; do echo x >>beats; sleep 0.02; done"))
	eventually(t, "it acts", func() bool { return r.lines(t, "beats") > 0 })
	r.stop()
	r.settled(t, "beats")
	ends(t, c)
}
