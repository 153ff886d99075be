package sandboxtest

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
	"github.com/dormouse-run/dormouse/sandbox"
)

func (w *world) put(t *testing.T, s sandbox.Sandbox, path, content string) {
	t.Helper()
	c := runner.Call{Op: w.op(), Kind: dormouse.OpWrite, Write: &runner.Write{Path: path, Content: []byte(content)}}
	if res := do(t, s, c); res.Error != "" {
		t.Fatal(res.Error)
	}
}

func filesReadBack(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	content := strings.Repeat("a line\r\n", 1<<17)
	w.put(t, s, "deep/file", content)
	read := func(path string, from, to int64) runner.Result {
		return do(t, s, runner.Call{Op: w.op(), Kind: dormouse.OpRead, Read: &runner.Read{Path: path, From: from, To: to}})
	}
	want := runner.Result{Output: []byte("a line\r\na line\r\n"), Size: int64(len(content)), Line: 1 << 16}
	if diff := cmp.Diff(want, read("deep/file", 1<<16, 1<<16+1)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if res := read("deep/file", 0, 0); !res.More || string(res.Output) != content[:runner.MaxText] {
		t.Errorf("of a large file %d bytes were read: %s", len(res.Output), res.Error)
	}
	if res := read("deep", 0, 0); res.Media != runner.MediaDirectory || string(res.Output) != "file\n" {
		t.Errorf("a directory was read as %+v", res)
	}
	w.put(t, s, "picture", "\x89PNG\r\n\x1a\n\x00\x00")
	if res := read("picture", 0, 0); res.Media != runner.MediaPNG || len(res.Output) != 10 {
		t.Errorf("an image was read as %+v", res)
	}
	w.put(t, s, "binary", "a\x00b")
	if res := read("binary", 0, 0); !strings.Contains(res.Error, "binary") {
		t.Errorf("a binary file was read as %+v", res)
	}
}

func editActsOnce(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	w.put(t, s, "file", "one\ntwo\nend")
	w.sh(t, s, "chmod 750 file")
	c := runner.Call{Op: w.op(), Kind: dormouse.OpWrite, Edit: &runner.Edit{Path: "file", Old: []byte("two\n"), New: []byte("two\nor two\n")}}
	for range 2 { // the same op
		if res := do(t, s, c); res.Error != "" || res.Count != 1 {
			t.Fatalf("result: %+v", res)
		}
	}
	if got := w.sh(t, s, "cat file; stat -c ' %a' file"); got != "one\ntwo\nor two\nend 750" {
		t.Errorf("the file is %q", got)
	}
	c.Op = w.op()
	if res := do(t, s, c); !strings.Contains(res.Error, "2 times") {
		t.Errorf("an edit that fits twice: %+v", res)
	}
	c = runner.Call{Op: w.op(), Kind: dormouse.OpWrite, Edit: &runner.Edit{Path: "file", Old: []byte("two"), New: []byte("2"), All: true}}
	if res := do(t, s, c); res.Count != 2 {
		t.Errorf("an edit of all: %+v", res)
	}
	if got := w.sh(t, s, "cat file"); got != "one\n2\nor 2\nend" {
		t.Errorf("the file is %q", got)
	}
}

func searches(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	w.sh(t, s, `mkdir -p a/b .git && echo 'some words' >a/b/old.txt && touch -d 2001-01-01 a/b/old.txt &&
		printf 'other\nwords\n' >new.txt && echo words >.git/new.txt && printf 'words\0' >binary`)
	for name, c := range map[string]runner.Call{
		"new.txt\na/b/old.txt\n":                      {Kind: dormouse.OpRead, Glob: &runner.Glob{Pattern: "**/*.txt"}},
		"new.txt:2:words\na/b/old.txt:1:some words\n": {Kind: dormouse.OpRead, Grep: &runner.Grep{Pattern: `wo.*s$`}},
		"a/b/old.txt\n":                               {Kind: dormouse.OpRead, Glob: &runner.Glob{Pattern: "*/*.t?t", Path: "a"}},
		"a/b/old.txt:1:some words\n":                  {Kind: dormouse.OpRead, Grep: &runner.Grep{Pattern: "some", Path: "a/b/old.txt"}},
	} {
		c.Op = w.op()
		if res := do(t, s, c); string(res.Output) != name || res.Error != "" || res.Note != "" {
			t.Errorf("found %q, want %q: %+v", res.Output, name, res)
		}
	}
}

func longOutputIsKept(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	run := func(size, keep int) runner.Result {
		command := "head -c " + strconv.Itoa(size) + " /dev/zero | tr '\\0' x"
		return do(t, s, runner.Call{Op: w.op(), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command, Keep: keep, Shell: "main"}})
	}
	if res := run(1000, 1000); res.File != "" || len(res.Output) != 1000 {
		t.Errorf("what was not too long is in %q", res.File)
	}
	res := run(1001, 1000)
	if res.File == "" {
		t.Fatalf("result: %+v", res)
	}
	if got := w.sh(t, s, "cat "+res.File); got != strings.Repeat("x", 1001) {
		t.Errorf("%d bytes were kept", len(got))
	}
	const more = 5
	res = run(runner.KeptHead+runner.KeptTail+more, 1000)
	if res.Omitted != more || w.sh(t, s, "grep -c 'bytes were not kept' "+res.File) != "1" {
		t.Errorf("of what was cut %d bytes are in %q", len(res.Output), res.File)
	}
	if !bytes.Equal(bytes.Trim(res.Output, "x"), nil) {
		t.Error("the output is not what was printed")
	}
}

func shellRestarts(t *testing.T, w *world) {
	s := w.create(t, 1, 1)
	run := func(command string, restart bool) runner.Result {
		return do(t, s, runner.Call{Op: w.op(), Kind: dormouse.OpExec, Exec: &runner.Exec{Command: command, Shell: "main", Restart: restart}})
	}
	for _, restart := range []func(){
		func() { run("", true) },
		func() {
			if res := run("echo ${said-nothing}", true); string(res.Output) != "nothing\n" || res.NewShell {
				t.Errorf("in the new shell: %+v", res)
			}
		},
	} {
		run("mkdir -p below; cd below; said=this", false)
		restart()
		if res := run(`echo ${said-nothing}; basename "$PWD"`, false); string(res.Output) == "this\nbelow\n" || !strings.HasPrefix(string(res.Output), "nothing\n") || res.NewShell {
			t.Errorf("after the restart: %+v", res)
		}
	}
}
