//go:build linux

package runner_test

import (
	"bytes"
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

func read(path string, offset, limit int64) runner.Call {
	return runner.Call{Op: newOp(), Kind: dormouse.OpRead, Read: &runner.Read{Path: path, Offset: offset, Limit: limit}}
}

func TestFileIsWrittenWholeAndReadBack(t *testing.T) {
	r, l := open(t)
	if res := do(t, l, write("a/b/c.txt", "hello")); res.Error != "" || res.Size != 5 {
		t.Fatalf("write: %+v", res)
	}
	for _, test := range []struct {
		name          string
		path          string
		offset, limit int64
		want          runner.Result
	}{
		{"whole", "a/b/c.txt", 0, 0, runner.Result{Output: []byte("hello"), Size: 5}},
		{"by its full path", filepath.Join(r.workspace, "a/b/c.txt"), 0, 0, runner.Result{Output: []byte("hello"), Size: 5}},
		{"a part", "a/b/c.txt", 1, 3, runner.Result{Output: []byte("ell"), Size: 5}},
		{"past its end", "a/b/c.txt", 9, 3, runner.Result{Output: nil, Size: 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, do(t, l, read(test.path, test.offset, test.limit))); diff != "" {
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

func TestLargeFileTravelsInParts(t *testing.T) {
	r, l := open(t)
	content := strings.Repeat("0123456789abcdef", (runner.MaxRead+32)/16)
	writeFile(t, filepath.Join(r.workspace, "large"), content)
	first := do(t, l, read("large", 0, 0))
	rest := do(t, l, read("large", int64(len(first.Output)), 0))
	if len(first.Output) != runner.MaxRead || first.Size != int64(len(content)) {
		t.Fatalf("first part has %d of %d bytes: %s", len(first.Output), first.Size, first.Error)
	}
	if !bytes.Equal(append(first.Output, rest.Output...), []byte(content)) {
		t.Error("the parts are not the file")
	}
}

func TestFileThatIsNoFileIsRefused(t *testing.T) {
	r, l := open(t)
	if err := syscall.Mkfifo(filepath.Join(r.workspace, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(r.workspace, "file"), "")
	for name, c := range map[string]runner.Call{
		"read of a directory":      read(".", 0, 0),
		"read of a pipe":           read("fifo", 0, 0),
		"read of a device":         read("/dev/zero", 0, 0),
		"read of nothing":          read("nothing", 0, 0),
		"read of no name":          read("", 0, 0),
		"read before the start":    read("file", -1, 0),
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
