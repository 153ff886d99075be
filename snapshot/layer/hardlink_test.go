//go:build linux

package layer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

func TestNamesOfOneFileBecomeFiles(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	must(os.Mkdir(in("d"), 0o750))
	must(os.WriteFile(in("a"), []byte("one"), 0o640))
	must(unix.Setxattr(in("a"), "user.x", []byte("y"), 0))
	must(os.Truncate(in("a"), 1<<20)) // most of it a hole
	must(os.Link(in("a"), in("b")))
	must(os.Link(in("a"), in("d/c")))
	must(os.WriteFile(in("alone"), []byte("x"), 0o600))
	must(os.Link(in("alone"), filepath.Join(t.TempDir(), "elsewhere")))
	must(unix.UtimesNanoAt(unix.AT_FDCWD, in("d"), []unix.Timespec{{Sec: 5}, {Sec: 6}}, 0))
	before, err := layertest.Listing(dir)
	must(err)
	var was unix.Stat_t
	must(unix.Lstat(in("alone"), &was))
	must(layer.BreakHardLinks(t.Context(), dir, layer.Limits{Entries: 100, Bytes: 1 << 30}))
	after, err := layertest.Listing(dir)
	must(err)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the files changed (-before +after):\n%s", diff)
	}
	inodes := make(map[uint64]string)
	for _, name := range []string{"a", "b", "d/c", "alone"} {
		var s unix.Stat_t
		must(unix.Lstat(in(name), &s))
		if other, ok := inodes[s.Ino]; ok {
			t.Errorf("%s and %s are one file", name, other)
		}
		if inodes[s.Ino] = name; s.Blocks*512 > 64<<10 {
			t.Errorf("%s has no hole any more", name)
		}
	}
	must(os.Link(in("a"), in("e")))
	must(os.Link(in("a"), in("f")))
	if err := layer.BreakHardLinks(t.Context(), dir, layer.Limits{Entries: 100, Bytes: 1 << 20}); !errors.Is(err, layer.ErrTooBig) {
		t.Errorf("two copies where there is room for one: %v", err)
	}
	var is unix.Stat_t
	if must(unix.Lstat(in("alone"), &is)); is.Ino != was.Ino {
		t.Error("a file with one name here was copied")
	}
}

// A hard link costs a sandbox nothing, and the host's disk the size of the file once
// its layer is mounted. Files are sparse here: what counts is what they say they have.
func TestHardLinksDoNotMultiplyOnTheDiskOfTheHost(t *testing.T) {
	for name, c := range map[string]struct {
		size  int64
		names int
		want  error
	}{
		"a few names of a large file": {4 << 30, 3, nil},
		"many names of a small file":  {1 << 20, 1000, nil},
		"one name too many":           {1 << 20, 1028, layer.ErrTooBig},
		"many names of a large file":  {100 << 20, 30, layer.ErrTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			from := t.TempDir()
			first := filepath.Join(from, "first")
			must(t, os.WriteFile(first, nil, 0o600))
			must(t, os.Truncate(first, c.size))
			for i := range c.names - 1 {
				must(t, os.Link(first, filepath.Join(from, "name"+strconv.Itoa(i))))
			}
			// Another large file does not pay for them.
			must(t, os.WriteFile(filepath.Join(from, "other"), nil, 0o600))
			must(t, os.Truncate(filepath.Join(from, "other"), 8<<30))
			to := t.TempDir()
			capture := layer.NewCapture(beneath.At(from), to, nil, nil, layer.Limits{Entries: 10_000, Bytes: 1 << 40})
			if _, err := capture.Pass(t.Context(), nil); !errors.Is(err, c.want) {
				t.Errorf("captured: %v, want %v", err, c.want)
			}
			if found, err := os.ReadDir(to); err != nil || c.want != nil && len(found) > 0 {
				t.Errorf("what is refused was copied: %v, %v", found, err)
			}
		})
	}
}
