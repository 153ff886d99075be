//go:build linux

package snapshot_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What is mounted holds no file with two names, whether it was kept or fetched.
func TestNamesOfOneFileAreFilesWhereTheyAreMounted(t *testing.T) {
	h := open(t)
	g := h.staged("a", "one", "alone", "two")
	must(t, os.Link(filepath.Join(g.Dir, "a"), filepath.Join(g.Dir, "b")))
	must(t, os.Chtimes(g.Dir, zero, zero))
	l, err := h.Put(t.Context(), g)
	must(t, err)
	check := func(when string) {
		t.Helper()
		at := h.use(1, l)[0]
		var a, b unix.Stat_t
		must(t, unix.Lstat(filepath.Join(at, "a"), &a))
		must(t, unix.Lstat(filepath.Join(at, "b"), &b))
		if a.Ino == b.Ino || content(t, at, "a") != "one" || content(t, at, "b") != "one" {
			t.Errorf("%s they are %d and %d", when, a.Ino, b.Ino)
		}
	}
	check("kept,")
	h.forget()
	check("fetched,")
}
