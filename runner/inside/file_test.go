//go:build linux

package inside_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func write(path, content string) runner.Call {
	return runner.Call{Op: newOp(), Kind: dormouse.OpWrite, Write: &runner.Write{Path: path, Content: []byte(content)}}
}

func read(path string, from, to int64) runner.Call {
	return runner.Call{Op: newOp(), Kind: dormouse.OpRead, Read: &runner.Read{Path: path, From: from, To: to}}
}

func TestFileIsWrittenWholeAndReadBack(t *testing.T) {
	r, l := open(t)
	const content = "one\ntwo\nthree"
	if res := do(t, l, write("a/b/c.txt", content)); res.Error != "" || res.Size != 13 {
		t.Fatalf("write: %+v", res)
	}
	for _, test := range []struct {
		name     string
		path     string
		from, to int64
		want     runner.Result
	}{
		{"whole", "a/b/c.txt", 0, 0, runner.Result{Output: []byte(content), Size: 13, Line: 1}},
		{"by its full path", filepath.Join(r.workspace, "a/b/c.txt"), 1, -1, runner.Result{Output: []byte(content), Size: 13, Line: 1}},
		{"a line", "a/b/c.txt", 2, 2, runner.Result{Output: []byte("two\n"), Size: 13, Line: 2}},
		{"to the end", "a/b/c.txt", 2, -1, runner.Result{Output: []byte("two\nthree"), Size: 13, Line: 2}},
		{"beyond the end", "a/b/c.txt", 3, 9, runner.Result{Output: []byte("three"), Size: 13, Line: 3}},
		{"past its end", "a/b/c.txt", 4, 4, runner.Result{Error: filepath.Join(r.workspace, "a/b/c.txt") + ": it has 3 lines"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, do(t, l, read(test.path, test.from, test.to))); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
	if left := mustGlob(t, filepath.Join(r.workspace, "a/b/.*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWriteKeepsModeAndLinkOfWhatItReplaces(t *testing.T) {
	r, l := open(t)
	script, link := filepath.Join(r.workspace, "script"), filepath.Join(r.workspace, "link")
	writeFile(t, script, "old")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("script", link); err != nil {
		t.Fatal(err)
	}
	if res := do(t, l, write("link", "new")); res.Error != "" {
		t.Fatal(res.Error)
	}
	if at, err := os.Lstat(link); err != nil || at.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", at.Mode(), err)
	}
	if at, err := os.Stat(script); err != nil || at.Mode().Perm() != 0o755 || r.read(t, "script") != "new" {
		t.Errorf("the script is %v, %v, %q", at.Mode(), err, r.read(t, "script"))
	}
}

func TestAFileThatIsTooLongIsReadInParts(t *testing.T) {
	r, l := open(t)
	line := strings.Repeat("0123456789abcde", 10) + "\n"
	lines := runner.MaxText/len(line) + 2
	writeFile(t, filepath.Join(r.workspace, "large"), strings.Repeat(line, lines))
	first := do(t, l, read("large", 0, 0))
	if len(first.Output) != runner.MaxText || !first.More {
		t.Fatalf("first part has %d bytes: %s", len(first.Output), first.Error)
	}
	whole := strings.Count(string(first.Output), "\n")
	rest := do(t, l, read("large", int64(whole)+1, -1))
	if rest.More || string(rest.Output) != strings.Repeat(line, lines-whole) {
		t.Errorf("the rest has %d bytes", len(rest.Output))
	}
}

func TestWhatIsNoTextIsCalledSo(t *testing.T) {
	r, l := open(t)
	for name, content := range map[string]string{
		"a.png": "\x89PNG\r\n\x1a\nrest", "b.jpg": "\xff\xd8\xff\x00", "c.gif": "GIF89a\x00", "d.webp": "RIFF\x00\x00\x00\x00WEBPVP8 ",
	} {
		writeFile(t, filepath.Join(r.workspace, name), content)
	}
	for name, media := range map[string]string{
		"a.png": runner.MediaPNG, "b.jpg": runner.MediaJPEG, "c.gif": runner.MediaGIF, "d.webp": runner.MediaWebP, ".": runner.MediaDirectory,
	} {
		if res := do(t, l, read(name, 0, 0)); res.Media != media || res.Error != "" {
			t.Errorf("%s: %+v", name, res)
		}
	}
	writeFile(t, filepath.Join(r.workspace, "large.png"), "\x89PNG\r\n\x1a\n"+strings.Repeat("x", runner.MaxImage))
	if res := do(t, l, read("large.png", 0, 0)); !strings.Contains(res.Error, "at most") {
		t.Errorf("an image that is too large: %d bytes, %q", len(res.Output), res.Error)
	}
	writeFile(t, filepath.Join(r.workspace, "program"), "\x7fELF\x00")
	if res := do(t, l, read("program", 0, 0)); !strings.Contains(res.Error, "binary file of 5 bytes") {
		t.Errorf("a program: %+v", res)
	}
}

func TestFileThatIsNoFileIsRefused(t *testing.T) {
	r, l := open(t)
	if err := syscall.Mkfifo(filepath.Join(r.workspace, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(r.workspace, "file"), "")
	for name, c := range map[string]runner.Call{
		"read of a pipe":           read("fifo", 0, 0),
		"read of a device":         read("/dev/zero", 0, 0),
		"read of nothing":          read("nothing", 0, 0),
		"read of no name":          read("", 0, 0),
		"read before the start":    read("file", -1, 0),
		"read from end to start":   read("file", 2, 1),
		"edit of a directory":      edit(".", "x", "y"),
		"edit of a pipe":           edit("fifo", "x", "y"),
		"edit of a device":         edit("/dev/zero", "x", "y"),
		"edit of nothing":          edit("nothing", "x", "y"),
		"glob of nothing":          glob("nothing", "*"),
		"glob of a file":           glob("file", "*"),
		"glob by half a class":     glob("", "[a"),
		"grep of nothing":          grep("nothing", "x"),
		"grep of a pipe":           grep("fifo", "x"),
		"grep of a device":         grep("/dev/zero", "x"),
		"grep by half a group":     grep("", "(a"),
		"write of a directory":     write(".", "x"),
		"write of a pipe":          write("fifo", "x"),
		"write of a device":        write("/dev/null", "x"),
		"write below a file":       write("file/below", "x"),
		"write of no name":         write("", "x"),
		"write where nobody may":   write("/proc/nowhere/file", "x"),
		"read of a name too long":  read(strings.Repeat("x", 5000), 0, 0),
		"write of a name too long": write(strings.Repeat("x", 300), "x"),
	} {
		t.Run(name, func(t *testing.T) {
			if res := do(t, l, c); res.Error == "" || len(res.Output) > 0 {
				t.Errorf("result: %+v", res)
			}
		})
	}
}

func TestReadLeavesNoRecord(t *testing.T) {
	r, l := open(t)
	c := read("file", 0, 0)
	for _, content := range []string{"one", "two"} {
		writeFile(t, filepath.Join(r.workspace, "file"), content)
		if got := string(do(t, l, c).Output); got != content {
			t.Errorf("read %q, want %q", got, content)
		}
	}
	if left := journal(t, r); left != "" {
		t.Errorf("recorded: %v", left)
	}
}
