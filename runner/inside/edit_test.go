//go:build linux

package inside_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func edit(path, was, now string) runner.Call {
	return runner.Call{Op: newOp(), Kind: dormouse.OpWrite, Edit: &runner.Edit{Path: path, Old: []byte(was), New: []byte(now)}}
}

func TestEditReplacesWhatItWasTold(t *testing.T) {
	r, l := open(t)
	for _, test := range []struct {
		name, file, was, now string
		all                  bool
		want, says           string
	}{
		{"one place", "a b c", "b", "x", false, "a x c", ""},
		{"nothing in its place", "a b c", " b", "", false, "a c", ""},
		{"no final line feed", "a\nb", "b", "c", false, "a\nc", ""},
		{"a final line feed", "a\nb\n", "b\n", "c\n", false, "a\nc\n", ""},
		{"every place", "a b a", "a", "aa", true, "aa b aa", ""},
		{"two places", "a b a", "a", "x", false, "a b a", "occurs 2 times"},
		{"no place", "a b c", "d", "x", false, "a b c", "not found"},
		{"bytes that are no text", "\xff\x00a", "a", "b", false, "\xff\x00b", ""},
		{"lines with carriage returns", "a\r\nb\r\nc\r\n", "a\nb", "x\ny", false, "x\r\ny\r\nc\r\n", ""},
		{"lines with carriage returns, spelled out", "a\r\nb\r\n", "a\r\n", "x\r\n", false, "x\r\nb\r\n", ""},
		{"lines of both kinds", "a\r\nb\nc", "b\nc", "x\ny", false, "a\r\nx\ny", ""},
		{"empty", "a", "", "x", true, "a", "empty"},
		{"the same", "a", "a", "a", false, "a", "is the old one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			writeFile(t, filepath.Join(r.workspace, "file"), test.file)
			c := edit("file", test.was, test.now)
			c.Edit.All = test.all
			res := do(t, l, c)
			if got := r.read(t, "file"); got != test.want {
				t.Errorf("the file is %q, want %q", got, test.want)
			}
			if (res.Error == "") != (test.says == "") || !strings.Contains(res.Error, test.says) {
				t.Errorf("error %q, want %q", res.Error, test.says)
			}
		})
	}
	if left := mustGlob(t, filepath.Join(r.workspace, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAnEditIsAppliedOnce(t *testing.T) {
	r, l := open(t)
	file := filepath.Join(r.workspace, "file")
	writeFile(t, file, "word")
	if err := os.Chmod(file, 0o741); err != nil {
		t.Fatal(err)
	}
	c := edit("file", "word", "wordword")
	first := do(t, l, c)
	r.stop()
	_ = l.Close()
	r.run(t)
	again := do(t, r.link(t, fence(1, 2)), c) // the next runner knows too
	if first.Count != 1 || again.Count != 1 || r.read(t, "file") != "wordword" {
		t.Errorf("first %+v, again %+v, and the file is %q", first, again, r.read(t, "file"))
	}
	if at, err := os.Stat(file); err != nil || at.Mode().Perm() != 0o741 {
		t.Errorf("its mode is %v, %v", at.Mode(), err)
	}
	if kept := journal(t, r); strings.Contains(kept, "d29yZHdvcmQ") {
		t.Errorf("the text is in the journal: %s", kept)
	}
}

func TestAFileTooLargeToEditStaysAsItIs(t *testing.T) {
	r, l := open(t)
	const large = 33 << 20
	file := filepath.Join(r.workspace, "file")
	writeFile(t, file, "word")
	if err := os.Truncate(file, large); err != nil {
		t.Fatal(err)
	}
	if res := do(t, l, edit("file", "word", "other")); !strings.Contains(res.Error, "may have") {
		t.Errorf("result: %+v", res)
	}
	writeFile(t, file, strings.Repeat("x", 1<<20))
	c := edit("file", "x", strings.Repeat("y", 100))
	c.Edit.All = true
	if res := do(t, l, c); !strings.Contains(res.Error, "more than") || len(r.read(t, "file")) != 1<<20 {
		t.Errorf("result: %+v", res)
	}
}
