//go:build linux

package wall

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEachThingThatMustNotBeIsSeen(t *testing.T) {
	for name, o := range map[string]observed{
		"memory":    {grew: mostGrowth + 1},
		"canary":    {leaks: []string{"event sandbox.stopped: a file of the host, plain"}},
		"host":      {touched: []string{"key was opened"}},
		"late":      {deleted: deleteWithin + time.Millisecond},
		"undeleted": {undeleted: "context deadline exceeded"},
		"neighbour": {neighbour: "it does not answer"},
		"died":      {died: "exit status 2"},
		"log":       {lines: mostLines + 1},
		"flood":     {lines: 101, mostLines: 100},
		"text":      {forged: []string{"a line of the log begins with it"}},
		"unsettled": {unsettled: "a snapshot is due"},
	} {
		if len(o.broke(bounds{1})) != 1 {
			t.Errorf("%s: %v", name, o.broke(bounds{1}))
		}
	}
	fine := observed{grew: mostGrowth, deleted: deleteWithin, lines: mostLines}
	if why := fine.broke(bounds{1}); len(why) > 0 {
		t.Errorf("what is within its bounds broke: %v", why)
	}
	if why := (observed{deleted: 20 * deleteWithin, lines: 100, mostLines: 100}).broke(bounds{20}); len(why) > 0 {
		t.Errorf("a slow machine is not given its time: %v", why)
	}
}

func TestWhoeverTouchesTheBaitIsSeen(t *testing.T) {
	b, err := layBait(filepath.Join(t.TempDir(), "bait"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.close() }()
	for name, touch := range map[string]func() error{
		"read": func() error { _, err := os.ReadFile(b.file); return err },
		"by a link": func() error {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(b.file, link); err != nil {
				return err
			}
			f, err := os.Open(link)
			if err == nil {
				err = f.Close()
			}
			return err
		},
		"mode":           func() error { return os.Chmod(b.file, 0o640) },
		"mode of socket": func() error { return os.Chmod(b.socket, 0o600) },
		"listed":         func() error { _, err := os.ReadDir(b.dir); return err },
		"written below":  func() error { return os.WriteFile(filepath.Join(b.dir, "new"), nil, 0o600) },
		"read below":     func() error { _, err := os.ReadFile(filepath.Join(b.dir, "log")); return err },
		"appended": func() error {
			f, err := os.OpenFile(b.file, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("x")
				_ = f.Close()
			}
			return err
		},
		"connected": func() error {
			c, err := net.Dial("unix", b.socket)
			if err == nil {
				_, err = c.Read(make([]byte, 1))
				_ = c.Close()
			}
			return err
		},
	} {
		b.begin()
		if err := touch(); err != nil {
			t.Fatal(name, err)
		}
		if len(b.touched()) == 0 {
			t.Errorf("%s: nobody noticed", name)
		}
	}
	b.begin()
	if _, err := os.Lstat(b.file); err != nil {
		t.Fatal(err)
	}
	if found := b.touched(); len(found) > 0 {
		t.Errorf("to look whether it is there is no touch: %v", found)
	}
}

func TestASecretInAProcessBelowIsSeen(t *testing.T) {
	c := newCanary("a secret")
	f := newFinder(c)
	seen := func() (found bool) {
		for _, p := range descendants(os.Getpid(), "no process has this") {
			found = found || len(f.in(p.text)) > 0
		}
		return found
	}
	for name, cmd := range map[string]*exec.Cmd{
		"environment":  exec.CommandContext(t.Context(), "sleep", "60"),
		"command line": exec.CommandContext(t.Context(), "sh", "-c", "sleep 60; : "+c.text),
	} {
		if name == "environment" {
			cmd.Env = []string{"KEY=" + c.text}
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(10 * time.Second)
		for !seen() && time.Now().Before(end) {
			time.Sleep(5 * time.Millisecond)
		}
		if !seen() {
			t.Errorf("nothing is found in the %s", name)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if seen() {
		t.Error("what has ended is still found")
	}
}

func TestMemoryOfAProcessIsRead(t *testing.T) {
	m, ok := memoryOf(os.Getpid())
	if !ok || m.rss < 1<<20 || m.peak < m.rss || m.file == 0 {
		t.Errorf("this process has %+v, %v", m, ok)
	}
}

func TestALineIsOneLine(t *testing.T) {
	if got := oneLine("a\n\x1b[2Jb\xff" + strings.Repeat("c", 1000)); strings.ContainsAny(got, "\n\x1b") || len(got) > 300 {
		t.Errorf("%q", got)
	}
}
