//go:build linux

package inside_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// entry is one of a tar.
type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}, content}
}

func link(kind byte, name, target string) entry {
	return entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: kind}}
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func getting(path string) runner.Stream { return runner.Stream{Tree: &runner.Tree{Path: path}} }

func get(t testing.TB, l *runner.Link, path string) ([]byte, runner.TreeStatus) {
	t.Helper()
	var b bytes.Buffer
	s, err := stream(t, l, getting(path)).GetTree(&b)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), s
}

func put(t testing.TB, l *runner.Link, path string, tar []byte) (runner.TreeStatus, error) {
	t.Helper()
	return stream(t, l, runner.Stream{Tree: &runner.Tree{Path: path, Put: true}}).PutTree(bytes.NewReader(tar))
}

// described is a directory as a person would compare it.
func described(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.Walk(dir, func(name string, at os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		what := at.Mode().String()
		switch {
		case at.Mode().IsRegular():
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			what += " " + at.ModTime().UTC().String() + " " + string(b)
		case at.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			what += " " + target
		default:
			what += " " + at.ModTime().UTC().String()
		}
		all[rel] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTreeComesBackAsItWas(t *testing.T) {
	r, l := open(t)
	do(t, l, exec(`mkdir -p one/sub/empty one/closed && cd one && echo x >plain && head -c 300000 /dev/urandom | base64 >sub/large &&
		printf '#!/bin/sh' >run && chmod 755 run && ln -s ../plain sub/link && ln -s /nowhere dangling && touch "$(printf 'odd\377\nname')" &&
		mkfifo pipe && touch -d 2001-02-03T04:05:06.789 plain && echo y >closed/in && chmod 500 closed && touch -d 2002-02-02 sub/empty`))
	b, sent := get(t, l, "one")
	if err := os.Remove(filepath.Join(r.workspace, "one/pipe")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(r.workspace, "plain"), "in the way")
	for range 2 { // the second time over the first
		got, err := put(t, l, "two", b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sent, got); diff != "" {
			t.Errorf("status (-sent +put):\n%s", diff)
		}
		one, two := described(t, filepath.Join(r.workspace, "one")), described(t, filepath.Join(r.workspace, "two"))
		delete(one, ".") // the pipe went from it
		delete(two, ".")
		if diff := cmp.Diff(one, two); diff != "" {
			t.Errorf("tree (-one +two):\n%s", diff)
		}
	}
	if r.read(t, "plain") != "in the way" {
		t.Error("something was unpacked beside the tree")
	}
}

func TestTreeMayBeOneFile(t *testing.T) {
	r, l := open(t)
	writeFile(t, filepath.Join(r.workspace, "file"), "content")
	if err := os.Symlink("file", filepath.Join(r.workspace, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "link"} {
		b, s := get(t, l, name)
		if s.Files != 1 || s.Bytes != 7 {
			t.Errorf("status: %+v", s)
		}
		h, err := tar.NewReader(bytes.NewReader(b)).Next()
		if err != nil || h.Name != "file" || h.Typeflag != tar.TypeReg {
			t.Errorf("entry: %+v, %v", h, err)
		}
	}
	if _, err := l.Open(deadline(t), getting("nowhere")); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("got nothing: %v", err)
	}
	if err := syscall.Mkfifo(filepath.Join(r.workspace, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Open(deadline(t), getting("pipe")); err == nil {
		t.Error("got a pipe")
	}
}

func TestTreeThatIsCutOffIsNotWhole(t *testing.T) {
	r, l := open(t)
	writeFile(t, filepath.Join(r.workspace, "file"), strings.Repeat("x", 1<<20))
	c := stream(t, l, getting("."))
	full := io.ErrShortWrite
	if _, err := c.GetTree(limited{1000, full}); !errors.Is(err, full) {
		t.Errorf("got into a full place: %v", err)
	}
	c = stream(t, l, getting("."))
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := c.GetTree(io.Discard); err == nil {
		t.Error("a tree that was cut off was got")
	}

	l = r.link(t, fence(1, 2))
	whole := archive(t, file("a", "x"), file("b", "y"))
	for _, size := range []int{0, 100, 512, 1000, 1024, 1536, len(whole) - 1024, len(whole) - 512} {
		if s, err := put(t, l, "cut", whole[:size]); err == nil {
			t.Errorf("%d of %d bytes were put whole: %+v", size, len(whole), s)
		}
	}
	if _, err := put(t, l, "cut", append(whole, make([]byte, 1<<20)...)); err != nil {
		t.Errorf("padded: %v", err)
	}
	broken := errors.New("broken")
	c = stream(t, l, runner.Stream{Tree: &runner.Tree{Path: "cut", Put: true}})
	if _, err := c.PutTree(io.MultiReader(bytes.NewReader(whole[:600]), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("put from a broken reader: %v", err)
	}
}

type limited struct {
	room int
	err  error
}

func (l limited) Write(b []byte) (int, error) {
	if len(b) > l.room {
		return l.room, l.err
	}
	return len(b), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// canary is a directory beside the target of a hostile tar.
func canary(t testing.TB, dir string) func(testing.TB) {
	t.Helper()
	beside := filepath.Join(dir, "canary")
	if err := os.MkdirAll(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(beside, "song"), "alive")
	if err := os.Chtimes(beside, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	before := described(t, beside)
	return func(t testing.TB) {
		t.Helper()
		if diff := cmp.Diff(before, described(t, beside)); diff != "" {
			t.Errorf("outside the tree (-before +after):\n%s", diff)
		}
	}
}

func TestHostileTarStaysInItsPlace(t *testing.T) {
	r, l := open(t)
	outside := filepath.Join(r.dir, "canary/song")
	alive := canary(t, r.dir)
	sparse := file("sparse", "")
	sparse.PAXRecords = map[string]string{"GNU_sparse.major": "1"} // which is what a writer will write
	var deep []entry
	for i := 0; i < 1000; i += 10 {
		deep = append(deep, file(strings.Repeat("d/", i)+"file", "x"))
	}
	for name, test := range map[string]struct {
		entries []entry
		fails   bool
	}{
		"a name with dots":                {[]entry{file("../../canary/song", "dead")}, true},
		"dots inside a name":              {[]entry{file("a/../../../canary/song", "dead")}, true},
		"an absolute name":                {[]entry{file(outside, "dead")}, true},
		"an empty name":                   {[]entry{file("", "dead")}, true},
		"a file in place of the top":      {[]entry{file(".", "dead")}, true},
		"a link in place of the top":      {[]entry{link(tar.TypeSymlink, ".", r.dir)}, true},
		"through a link":                  {[]entry{link(tar.TypeSymlink, "way", "../../canary"), file("way/song", "dead")}, true},
		"through an absolute link":        {[]entry{link(tar.TypeSymlink, "way", filepath.Dir(outside)), file("way/song", "dead")}, true},
		"through a link to a link":        {[]entry{link(tar.TypeSymlink, "a", "../.."), link(tar.TypeSymlink, "b", "a/canary"), file("b/song", "dead")}, true},
		"a directory over a link":         {[]entry{link(tar.TypeSymlink, "way", "../../canary"), {Header: tar.Header{Name: "way/", Typeflag: tar.TypeDir, Mode: 0o777}}, file("way/song", "inside")}, false},
		"a file over a link":              {[]entry{link(tar.TypeSymlink, "song", "../../canary/song"), file("song", "inside")}, false},
		"a loop of links":                 {[]entry{link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "b", "a"), file("a/song", "dead")}, true},
		"a hard link out":                 {[]entry{link(tar.TypeLink, "song", "../../canary/song"), file("song", "dead")}, true},
		"an absolute hard link":           {[]entry{link(tar.TypeLink, "song", outside)}, true},
		"a hard link through a link":      {[]entry{link(tar.TypeSymlink, "way", "../../canary"), link(tar.TypeLink, "song", "way/song")}, true},
		"a hard link to nothing":          {[]entry{link(tar.TypeLink, "song", "later"), file("later", "x")}, true},
		"a hard link inside":              {[]entry{file("a", "x"), link(tar.TypeLink, "b", "./a")}, false},
		"a file over a hard link":         {[]entry{file("a", "x"), link(tar.TypeLink, "b", "a"), file("b", "y")}, false},
		"a device":                        {[]entry{{Header: tar.Header{Name: "device", Typeflag: tar.TypeBlock, Devmajor: 8}}}, false},
		"a file over a directory":         {[]entry{file("a/b", "x"), file("a", "y")}, true},
		"a directory below a file":        {[]entry{file("a", "x"), file("a/b", "y")}, true},
		"a sparse file":                   {[]entry{sparse}, true},
		"the end of time":                 {[]entry{{Header: tar.Header{Name: "f", Typeflag: tar.TypeReg, ModTime: time.Unix(1<<40, 0), Format: tar.FormatPAX}}}, false},
		"names deeper than a path may be": {deep, false},
		"a set-uid program":               {[]entry{{Header: tar.Header{Name: "root", Typeflag: tar.TypeReg, Mode: 0o6755}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			target := "in/" + strings.ReplaceAll(name, " ", "-")
			s, err := put(t, l, target, bytes.ReplaceAll(archive(t, test.entries...), []byte("GNU_"), []byte("GNU.")))
			if (err != nil) != test.fails {
				t.Errorf("put: %+v, %v", s, err)
			}
			if test.fails && s.Error == "" {
				t.Errorf("no reason: %+v, %v", s, err)
			}
			for below, what := range described(t, filepath.Join(r.workspace, target)) {
				if strings.HasSuffix(what, "dead") || strings.ContainsAny(what[:2], "Dugpc") { // a device, a pipe, a set-uid bit
					t.Errorf("%s is %q", below, what)
				}
			}
			alive(t)
		})
	}
}
