//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/auth"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/sandbox/local/localtest"
)

// person is a user who runs a command at a terminal.
type person struct {
	t      *testing.T
	master *os.File
	tty    *os.File
	shown  safeBuffer
	read   chan struct{}
	code   chan int
	stop   context.CancelFunc
	before *term.State // of the terminal
}

// sit runs a command line on a terminal of 30 by 100.
func (o *office) sit(args ...string) *person {
	o.t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		o.t.Fatal(err)
	}
	master = watchable(o.t, master)
	s := &person{t: o.t, master: master, tty: tty, read: make(chan struct{}), code: make(chan int, 1)}
	s.resize(30, 100)
	s.before = s.state()
	ctx, stop := context.WithCancel(o.t.Context())
	s.stop = stop
	go func() {
		defer close(s.read)
		_, _ = io.Copy(&s.shown, master)
	}()
	go func() { s.code <- run(ctx, append([]string{"--data", o.data}, args...), tty, tty, tty) }()
	o.t.Cleanup(func() {
		stop()
		_ = master.Close() // which ends readers of the other end
		<-s.read
		_ = tty.Close()
	})
	return s
}

// watchable is a file that can be closed while it is being read. Its descriptor
// must not be asked for again: that makes it blocking, and a blocking read
// cannot be interrupted.
func watchable(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), syscall.SetNonblock(fd, true)); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func (s *person) resize(rows, cols uint16) {
	s.t.Helper()
	raw, err := s.master.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	if bad := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}); bad != nil || err != nil {
		s.t.Fatal(bad, err)
	}
}

func (s *person) types(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.master, text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *person) sees(want string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%q is seen", want), func() bool { return strings.Contains(s.shown.String(), want) })
}

func (s *person) leaves() int {
	s.t.Helper()
	select {
	case code := <-s.code:
		return code
	case <-time.After(30 * time.Second):
		s.t.Fatalf("the command does not end: %q", s.shown.String())
		return 0
	}
}

func (s *person) state() *term.State {
	s.t.Helper()
	st, err := term.GetState(int(s.tty.Fd()))
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// terminals asks the server which there are.
func (o *office) terminals(id string) []client.TerminalReport {
	o.t.Helper()
	token, err := auth.ReadToken(filepath.Join(o.data, tokenFile))
	if err != nil {
		o.t.Fatal(err)
	}
	c, err := client.New(client.Options{URL: o.http.URL, Token: token, HTTP: newHTTP()})
	if err != nil {
		o.t.Fatal(err)
	}
	all, err := c.Terminals(o.t.Context(), dormouse.SessionID(id))
	if err != nil {
		o.t.Fatal(err)
	}
	return all
}

func TestShellIsATerminal(t *testing.T) {
	o := newOfficeOn(t, localtest.Open(t))
	id := o.create()
	s := o.sit("shell", id, "--", "sh", "-c", "stty size; read x; stty size; echo got $x; exit 7")
	s.sees("30 100")
	s.resize(40, 120)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the size is known", func() bool {
		all := o.terminals(id)
		return len(all) == 1 && all[0].Rows == 40 && all[0].Cols == 120
	})
	s.types("word\r")
	s.sees("40 120")
	s.sees("got word")
	if code := s.leaves(); code != 7 {
		t.Errorf("exit %d: %q", code, s.shown.String())
	}
}

func TestShellGivesTheTerminalBack(t *testing.T) {
	o := newOfficeOn(t, localtest.Open(t))
	id := o.create()
	for name, leave := range map[string]func(*person){
		"the command ends":        func(s *person) { s.types("x\r") },
		"it is interrupted":       func(s *person) { s.stop() },
		"the sandbox is stopped":  func(*person) { o.must("session", "hibernate", id) },
		"the terminal is refused": nil,
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"shell", id, "--", "sh", "-c", "echo up; read x"}
			if leave == nil {
				args = []string{"shell", "sesn_nobody"}
			}
			s := o.sit(args...)
			before := s.before
			if leave != nil {
				s.sees("up")
				eventually(t, "the terminal is raw", func() bool { return !reflect.DeepEqual(before, s.state()) })
				leave(s)
			}
			code := s.leaves()
			if !reflect.DeepEqual(before, s.state()) {
				t.Error("the terminal is left raw")
			}
			if (code == 0) != (name == "the command ends") {
				t.Errorf("exit %d: %q", code, s.shown.String())
			}
		})
	}
}

func TestShellWorksThroughPipes(t *testing.T) {
	o := newOfficeOn(t, localtest.Open(t))
	id := o.create()
	out, errs, code := runIn(t.Context(), "echo one-$((1+1))\nexit 5\n", "--data", o.data, "shell", id, "--", "sh")
	if code != 5 || !strings.Contains(out, "one-2") {
		t.Errorf("exit %d: %q %q", code, out, errs)
	}
	// The end of what is piped ends what reads it.
	out, errs, code = runIn(t.Context(), "words\n", "--data", o.data, "shell", id, "--", "sh", "-c", "cat; echo done")
	if code != 0 || !strings.Contains(out, "words") || !strings.Contains(out, "done") {
		t.Errorf("exit %d: %q %q", code, out, errs)
	}
}

func TestCpCopiesBothWays(t *testing.T) {
	o := newOfficeOn(t, localtest.Open(t))
	id := o.create()
	here := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(here, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := func(name, content string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(here, name)); err != nil || string(b) != content {
			t.Errorf("%s holds %q, %v; want %q", name, b, err, content)
		}
	}
	one := write("one.txt", "1")
	write("tree/a/b", "deep")
	write("tree/c", "c")
	if err := os.Symlink("a/b", filepath.Join(here, "tree/link")); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(here, "tree")
	o.must("cp", one, id+":dir/")
	o.must("cp", one, id+":dir/two.txt")
	o.must("cp", one, id+":")
	o.must("cp", tree, id+":copy")
	if out := o.must("cp", "--json", tree, id+":dir/"); !strings.Contains(out, `"bytes":5`) {
		t.Errorf("told %s", out)
	}

	o.must("cp", id+":dir/two.txt", filepath.Join(here, "back"))
	want("back", "1")
	if at, err := os.Stat(filepath.Join(here, "back")); err != nil || at.Mode().Perm() != 0o640 {
		t.Errorf("mode: %v, %v", at, err)
	}
	o.must("cp", id+":one.txt", here+"/tree") // into a directory that is there
	want("tree/one.txt", "1")
	o.must("cp", id+":dir", filepath.Join(here, "new"))
	want("new/one.txt", "1")
	want("new/tree/a/b", "deep")
	if to, err := os.Readlink(filepath.Join(here, "new/tree/link")); err != nil || to != "a/b" {
		t.Errorf("link to %q, %v", to, err)
	}
	o.must("cp", id+":copy", filepath.Join(here, "new"))
	want("new/copy/c", "c")

	// Through pipes it is a tar.
	raw := o.must("cp", id+":dir", "-")
	out, errs, code := runIn(t.Context(), raw, "--data", o.data, "cp", "-", id+":again")
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	o.must("cp", id+":again/tree/c", filepath.Join(here, "c"))
	want("c", "c")
}

func TestCpSaysWhatItCannotDo(t *testing.T) {
	o := newOfficeOn(t, localtest.Open(t))
	id := o.create()
	here := t.TempDir()
	o.must("cp", o.data+"/"+tokenFile, id+":file")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"a", "b"}, exitUsage, "SESSION:PATH"},
		{[]string{id + ":a", id + ":b"}, exitUsage, "SESSION:PATH"},
		{[]string{id + ":nothing", here}, exitError, "not found"},
		{[]string{here + "/nothing", id + ":."}, exitError, "no such file"},
		{[]string{id + ":file", here + "/no/where"}, exitError, "no such file"},
		{[]string{here, id + ":file"}, exitError, "directory"},
		{[]string{"/dev/null", id + ":null"}, exitError, "neither"},
	} {
		out, errs, code := o.run(append([]string{"cp"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit %d: %s%s", c.args, code, out, errs)
		}
	}
	if left, err := os.ReadDir(here); err != nil || len(left) != 0 {
		t.Errorf("left here: %v, %v", left, err)
	}
}

func TestForwardReachesAPort(t *testing.T) {
	o := newOfficeOn(t, localtest.Open(t))
	id := o.create()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a local sandbox has the ports of its machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			_, _ = c.Write(bytes.ToUpper(b))
			_ = c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	ctx, stop := context.WithCancel(t.Context())
	var out, errs safeBuffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"--data", o.data, "forward", "--json", id, fmt.Sprintf("0:%d", port), "0:1"}, strings.NewReader(""), &out, &errs)
	}()
	eventually(t, "it listens", func() bool { return strings.Count(out.String(), "\n") == 2 })
	var leads []forwarded
	for dec := json.NewDecoder(strings.NewReader(out.String())); dec.More(); {
		var f forwarded
		if err := dec.Decode(&f); err != nil {
			t.Fatal(err)
		}
		leads = append(leads, f)
	}
	shout := func(text string) string {
		t.Helper()
		c, err := net.Dial("tcp", leads[0].Local)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	large := strings.Repeat("word", 1<<16)
	if got := shout(large); got != strings.ToUpper(large) {
		t.Errorf("%d bytes came back of %d", len(got), len(large))
	}
	// A connection wakes a hibernated session.
	o.must("session", "hibernate", id)
	if got := shout("again"); got != "AGAIN" {
		t.Errorf("after hibernation came %q: %s", got, errs.String())
	}
	c, err := net.Dial("tcp", leads[1].Local)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(c)
	_ = c.Close()
	eventually(t, "nobody listens there", func() bool { return strings.Contains(errs.String(), "port 1") })
	stop()
	if got := <-code; got != 0 {
		t.Errorf("exit %d: %s", got, errs.String())
	}
}

func TestPsShowsSandboxes(t *testing.T) {
	o := newOfficeOn(t, localtest.Open(t))
	id, cold := o.create(), o.create()
	s := o.sit("shell", id, "--", "sh", "-c", "echo up; read x")
	s.sees("up")
	out := o.must("ps")
	if n := strings.Count(out, "\n"); n != 3 || !strings.Contains(out, "cold") || !strings.Contains(out, "iB") {
		t.Errorf("%d lines: %s", n, out)
	}
	var all struct {
		Sessions []struct {
			Session string
			Usage   *struct{ Processes int }
		}
	}
	if err := json.Unmarshal([]byte(o.must("ps", "--json", id, cold)), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Sessions) != 2 || all.Sessions[0].Session != id || all.Sessions[0].Usage == nil || all.Sessions[0].Usage.Processes != 1 || all.Sessions[1].Usage != nil {
		t.Errorf("told %+v", all)
	}
	if out := o.must("ports", id); !strings.HasPrefix(out, "PORT") {
		t.Errorf("ports: %s", out)
	}
	if _, errs, code := o.run("ports", cold); code != exitError || !strings.Contains(errs, "wake it first") {
		t.Errorf("ports of a cold one: exit %d: %s", code, errs)
	}
	s.types("x\r")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestSizesAreForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
