package sandboxtest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

// machine returns what s promises beyond ops, if it does.
func machine(t *testing.T, s sandbox.Sandbox) sandbox.Machine {
	t.Helper()
	m, ok := s.(sandbox.Machine)
	if !ok {
		t.Skip("this sandbox is no sandbox.Machine")
	}
	return m
}

func stream(t *testing.T, m sandbox.Machine, s runner.Stream) *runner.Conn {
	t.Helper()
	c, err := m.Open(within(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func terminal(id string, command ...string) runner.Stream {
	return runner.Stream{Terminal: &runner.Terminal{ID: id, Command: command}}
}

// shows reads c until it has shown want.
func shows(t *testing.T, c net.Conn, want string) {
	t.Helper()
	var seen []byte
	buf := make([]byte, 1<<10)
	for !bytes.Contains(seen, []byte(want)) {
		n, err := c.Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			t.Fatalf("%q was not shown but %q, %v", want, seen, err)
		}
	}
}

func types(t *testing.T, c io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// ends reads c until it ends.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	var late net.Error
	if _, err := io.Copy(io.Discard, c); errors.As(err, &late) && late.Timeout() {
		t.Error("the stream did not end")
	}
}

func terminalReport(t *testing.T, m sandbox.Machine, id string) runner.TerminalReport {
	t.Helper()
	all, err := m.Terminals(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, rep := range all {
		if rep.ID == id {
			return rep
		}
	}
	return runner.TerminalReport{}
}

func terminalOutlives(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	m := machine(t, s)
	c := stream(t, m, terminal("t", "sh", "-c", "tty; echo first; while read x; do echo got $x; done; exit 7"))
	shows(t, c, "first")
	next := w.attach(t, w.Restart(t), s.Handle(), 1, 2)
	ends(t, c)
	m = machine(t, next)
	c = stream(t, m, terminal("t"))
	shows(t, c, "/dev/")
	types(t, c, "word\n")
	shows(t, c, "got word")
	if rep := terminalReport(t, m, "t"); rep.PID == 0 || rep.Attached != 1 || rep.Exit != nil {
		t.Errorf("report: %+v", rep)
	}
	types(t, c, "\x04")
	ends(t, c)
	eventually(t, "its end is known", func() bool {
		exit := terminalReport(t, m, "t").Exit
		return exit != nil && *exit == 7
	})
}

func terminalResizes(t *testing.T, w *world) {
	m := machine(t, w.create(t, 1, 1))
	c := stream(t, m, terminal("t", "sh", "-c", "while read x; do stty size; done"))
	if err := m.Resize(within(t), "t", 50, 120); err != nil {
		t.Fatal(err)
	}
	types(t, c, "\n")
	shows(t, c, "50 120")
	if err := m.Resize(within(t), "none", 1, 1); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("resized one that is not there: %v", err)
	}
}

func terminalEnds(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	m := machine(t, s)
	c := stream(t, m, terminal("t", "sh", "-c", "(setsid sh -c 'while :; do echo x >>beats.child; sleep 0.02; done' &); while :; do echo x >>beats; sleep 0.02; done"))
	w.beats(t, s, "beats")
	if err := m.EndTerminal(within(t), "t"); err != nil {
		t.Fatal(err)
	}
	w.idle(t, s, "beats*")
	ends(t, c)
	if err := m.EndTerminal(within(t), "none"); err != nil {
		t.Errorf("ended one that is not there: %v", err)
	}
}

// listener is a program that answers on a port, in a language that the sandbox under test
// has.
const listener = `import os, socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(5)
open("port.new", "w").write(str(s.getsockname()[1]) + "\n")
os.rename("port.new", "port")
while True:
    c, _ = s.accept()
    sent = b""
    while True:
        b = c.recv(4096)
        if not b:
            break
        sent += b
    c.sendall(sent.upper())
    c.close()
`

func portsAreReached(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	m := machine(t, s)
	if w.sh(t, s, "command -v python3 || true") == "" {
		t.Skip("needs python3 in the sandbox")
	}
	program := runner.Call{Op: w.op(), Kind: dormouse.OpWrite, Write: &runner.Write{Path: "listener.py", Content: []byte(listener)}}
	do(t, s, program)
	task := runner.Call{Op: w.op(), Kind: dormouse.OpTask, Exec: &runner.Exec{Command: "exec python3 listener.py"}}
	pid := do(t, s, task).PID
	eventually(t, "the port is there", func() bool { return w.count(t, s, "port") == 1 })
	all, err := m.Ports(within(t))
	if err != nil {
		t.Fatal(err)
	}
	var found runner.Port
	for _, p := range all {
		if p.PID == pid {
			found = p
		}
	}
	if found.Address != "127.0.0.1" || !strings.Contains(found.Command, "listener.py") {
		t.Fatalf("process %d is not among %+v", pid, all)
	}
	c := stream(t, m, runner.Stream{Port: &runner.PortStream{Port: found.Port}})
	types(t, c, "hello")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "HELLO" {
		t.Errorf("answered %q, %v", b, err)
	}
	if err := s.Kill(within(t), task.Op); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Open(within(t), runner.Stream{Port: &runner.PortStream{Port: found.Port}}); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("opened a port that nobody listens on: %v", err)
	}
}

func treesTravel(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	m := machine(t, s)
	w.sh(t, s, "mkdir -p one/sub && echo x >one/sub/file && chmod 755 one/sub/file && ln -s sub/file one/link && mkfifo one/pipe && mkdir one/empty")
	var tar bytes.Buffer
	got, err := stream(t, m, runner.Stream{Tree: &runner.Tree{Path: "one"}}).GetTree(&tar)
	if err != nil {
		t.Fatal(err)
	}
	put, err := stream(t, m, runner.Stream{Tree: &runner.Tree{Path: "two", Put: true}}).PutTree(bytes.NewReader(tar.Bytes()))
	if err != nil || put != got || put.Files != 5 {
		t.Errorf("got %+v, put %+v, %v", got, put, err)
	}
	if diff := w.sh(t, s, "rm one/pipe; diff -r --no-dereference one two && [ -x two/sub/file ] && [ -d two/empty ] && echo same"); diff != "same" {
		t.Errorf("differ: %s", diff)
	}
	half := bytes.NewReader(tar.Bytes()[:tar.Len()/2])
	if s, err := stream(t, m, runner.Stream{Tree: &runner.Tree{Path: "three", Put: true}}).PutTree(half); err == nil {
		t.Errorf("half a tree was put whole: %+v", s)
	}
}

func watchesSee(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	m := machine(t, s)
	w.sh(t, s, "mkdir dir")
	c := stream(t, m, runner.Stream{Watch: &runner.Watch{Path: ".", Recursive: true}})
	w.sh(t, s, "echo x >dir/file; mkdir new; echo x >new/file; rm dir/file")
	missing := map[runner.Change]bool{
		{Path: "dir/file", Op: runner.Created}: true,
		{Path: "dir/file", Op: runner.Written}: true,
		{Path: "dir/file", Op: runner.Removed}: true,
		{Path: "new/file", Op: runner.Created}: true,
	}
	for change, err := range c.Changes() {
		if err != nil {
			t.Fatalf("missing %v: %v", missing, err)
		}
		if delete(missing, change); len(missing) == 0 {
			return
		}
	}
	t.Errorf("missing %v", missing)
}

func usageKnows(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	m := machine(t, s)
	usage := func() runner.Usage {
		u, err := m.Usage(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := usage()
	c := w.exec("while [ ! -e go ]; do sleep 0.02; done")
	start(t, s, c)
	stream(t, m, terminal("t", "cat"))
	do(t, s, runner.Call{Op: w.op(), Kind: dormouse.OpTask, Exec: &runner.Exec{Command: "sleep 1000"}})
	during := usage()
	if during.Ops != 1 || during.Tasks != 1 || during.Terminals != 1 || during.Processes < 3 || during.RSS <= 0 {
		t.Errorf("during: %+v", during)
	}
	if !during.Active.After(before.Active) {
		t.Errorf("active at %v, then at %v", before.Active, during.Active)
	}
	w.sh(t, s, "touch go")
	wait(t, s, c.Op)
	eventually(t, "the op is over", func() bool { return usage().Ops == 0 })
	if first, second := usage(), usage(); !second.Active.Equal(first.Active) {
		t.Errorf("active at %v and %v, though nothing happened", first.Active, second.Active)
	}
}

func streamsAreFenced(t *testing.T, w *world) {
	older := w.create(t, 1, 1)
	m := machine(t, older)
	put := stream(t, m, runner.Stream{Tree: &runner.Tree{Path: "late", Put: true}})
	c := stream(t, m, runner.Stream{Watch: &runner.Watch{Path: "."}})
	newer := w.attach(t, w.Restart(t), older.Handle(), 1, 2)
	ends(t, c)
	ends(t, put)
	if _, err := m.Open(within(t), terminal("late", "sh", "-c", "echo x >>acts")); !errors.Is(err, runner.ErrStale) {
		t.Errorf("open under the older epoch: %v", err)
	}
	if n := w.count(t, newer, "acts"); n != 0 {
		t.Errorf("acted %d times", n)
	}
}

func closeEndsStreams(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	c := stream(t, machine(t, s), runner.Stream{Watch: &runner.Watch{Path: "."}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ends(t, c)
}
