//go:build linux

package inside_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

func glob(path, pattern string) runner.Call {
	return runner.Call{Op: newOp(), Kind: dormouse.OpRead, Glob: &runner.Glob{Path: path, Pattern: pattern}}
}

func grep(path, pattern string) runner.Call {
	return runner.Call{Op: newOp(), Kind: dormouse.OpRead, Grep: &runner.Grep{Path: path, Pattern: pattern}}
}

// plant makes files, each older than the one before.
func (r *rig) plant(t testing.TB, files ...string) {
	t.Helper()
	when := time.Now()
	for i, f := range files {
		name, content, _ := strings.Cut(f, "=")
		name = filepath.Join(r.workspace, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, name, content)
		old := when.Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGlobFindsFilesTheNewestFirst(t *testing.T) {
	r, l := open(t)
	r.plant(t, "z.go", "a.go", "sub/b.go", "sub/deep/c_test.go", "sub/deep/d.ts", ".github/w.yml", ".git/config", "sub/.git/x.go", "odd [1].txt", "e,f.txt")
	if err := os.Symlink("sub", filepath.Join(r.workspace, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, pattern, want string }{
		{"", "*.go", "z.go a.go"},
		{"", "**/*.go", "z.go a.go sub/b.go sub/deep/c_test.go"},
		{"", "sub/**", "sub/b.go sub/deep/c_test.go sub/deep/d.ts"},
		{"", "**/deep/*", "sub/deep/c_test.go sub/deep/d.ts"},
		{"", "sub/*/*.{ts,js}", "sub/deep/d.ts"},
		{"", "{sub/deep,.github}/*.{ts,yml}", "sub/deep/d.ts .github/w.yml"},
		{"", "?.go", "z.go a.go"},
		{"", "[!z].go", "a.go"},
		{"", "[a-b].go", "a.go"},
		{"", "sub/[]a-c].go", "sub/b.go"},
		{"", "odd \\[1\\].txt", "odd [1].txt"},
		{"", "e,f.*", "e,f.txt"},
		{"", "**/w.yml", ".github/w.yml"},
		{"", ".git/*", ".git/config"},
		{"", "sub/deep/d.ts", "sub/deep/d.ts"},
		{"", "nowhere/*", ""},
		{"sub", "**/*.go", "sub/b.go sub/deep/c_test.go"},
		{"link", "*.go", "link/b.go"},
		{"", "a**.go", "a.go"},
	} {
		res := do(t, l, glob(test.path, test.pattern))
		want := strings.ReplaceAll(test.want, " sub", "\nsub")
		want = strings.NewReplacer(" a.go", "\na.go", " .github", "\n.github").Replace(want)
		if want != "" {
			want += "\n"
		}
		if string(res.Output) != want || res.Error != "" || res.Note != "" {
			t.Errorf("%q in %q: %+v found\n%s, want\n%s", test.pattern, test.path, res, res.Output, want)
		}
	}
	absolute := filepath.Join(r.workspace, "sub/b.go")
	for _, c := range []runner.Call{glob("", filepath.Join(r.workspace, "sub/*.go")), glob(filepath.Join(r.workspace, "sub"), "*.go")} {
		if res := do(t, l, c); string(res.Output) != absolute+"\n" {
			t.Errorf("by its full path: %+v", res)
		}
	}
}

func TestAGlobThatFindsTooMuchSaysSo(t *testing.T) {
	r, l := open(t)
	var files []string
	for i := range 2500 {
		files = append(files, fmt.Sprintf("d%d/f%04d", i%7, i))
	}
	r.plant(t, files...)
	res := do(t, l, glob("", "**"))
	names := strings.Fields(string(res.Output))
	if res.Count != 2500 || len(names) != 1000 || !strings.Contains(res.Note, "2500 files fit") || names[0] != "d0/f0000" || names[999] != "d5/f0999" {
		t.Errorf("%d named from %s to %s of %d: %s", len(names), names[0], names[len(names)-1], res.Count, res.Note)
	}
}

func TestGrepShowsLinesThatFit(t *testing.T) {
	r, l := open(t)
	long := strings.Repeat("ü", 300)
	r.plant(t, "a.txt=one\ntwo words\r\nthree", "b/c.txt=Two words\n\nlast words", ".git/x=words", "binary=words\x00", "b/long="+long+"\n",
		"b/wide="+strings.Repeat("x", 300<<10)+"wide\nafter\n")
	if err := os.Symlink("a.txt", filepath.Join(r.workspace, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, pattern, want string }{
		{"", "words$", "a.txt:2:two words\nb/c.txt:1:Two words\nb/c.txt:3:last words\n"},
		{"", "(?i)two", "a.txt:2:two words\nb/c.txt:1:Two words\n"},
		{"", `\bt\w+e+`, "a.txt:3:three\n"},
		{"b", "words", "b/c.txt:1:Two words\nb/c.txt:3:last words\n"},
		{"a.txt", "^o", "a.txt:1:one\n"},
		{"link", "^o", "link:1:one\n"},
		{"b/c.txt", "^$", "b/c.txt:2:\n"},
		{"b/long", "ü", "b/long:1:" + strings.Repeat("ü", 250) + " […]\n"},
		{"b/wide", "after", "b/wide:2:after\n"},
		{"b/c.txt", "one|last", "b/c.txt:3:last words\n"},
		{"", "nowhere", ""},
	} {
		res := do(t, l, grep(test.path, test.pattern))
		if string(res.Output) != test.want || res.Error != "" || res.Note != "" || res.Count != strings.Count(test.want, "\n") {
			t.Errorf("%q in %q: %+v found\n%s, want\n%s", test.pattern, test.path, res.Note, res.Output, test.want)
		}
	}
}

func TestAGrepThatFindsTooMuchStops(t *testing.T) {
	r, l := open(t)
	r.plant(t, "short="+strings.Repeat("x\n", 5000), "wide/file="+strings.Repeat(strings.Repeat("x", 400)+"\n", 900))
	for path, lines := range map[string]int{"short": 1000, "wide": 241} {
		res := do(t, l, grep(path, "x"))
		if res.Count != lines || len(res.Output) > runner.MaxText || !strings.Contains(res.Note, "stopped at") {
			t.Errorf("%s: %d lines of %d bytes: %s", path, res.Count, len(res.Output), res.Note)
		}
	}
}

func TestASearchLeavesNoRecord(t *testing.T) {
	r, l := open(t)
	r.plant(t, "file=word")
	for _, c := range []runner.Call{glob("", "*"), grep("", "word")} {
		first := do(t, l, c)
		r.plant(t, "second=word")
		if second := do(t, l, c); second.Count != 2 || first.Count != 1 { // it looks whenever it is asked
			t.Errorf("first %d, then %d", first.Count, second.Count)
		}
		if err := os.Remove(filepath.Join(r.workspace, "second")); err != nil {
			t.Fatal(err)
		}
	}
	if left := journal(t, r); left != "" {
		t.Errorf("recorded: %v", left)
	}
}
