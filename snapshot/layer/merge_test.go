//go:build linux

package layer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A file can only have so many names. A merge of a file with almost that many still
// gives one file, or two, and not as many as there are names.
func TestAFileWithManyNamesIsMerged(t *testing.T) {
	asRoot(t)
	const many = 40_000 // ext4 takes 65,000
	from, to := t.TempDir(), t.TempDir()
	first := filepath.Join(from, "0")
	must(t, os.WriteFile(first, []byte("x"), 0o600))
	for n := range many {
		must(t, os.Link(first, filepath.Join(from, fmt.Sprint(n+1))))
	}
	must(t, layer.Merge(t.Context(), []string{from}, plenty, to))
	inodes := make(map[uint64]int)
	for n := range many + 1 {
		var s unix.Stat_t
		must(t, unix.Lstat(filepath.Join(to, fmt.Sprint(n)), &s))
		inodes[s.Ino]++
	}
	if len(inodes) > 2 {
		t.Errorf("there are %d files", len(inodes))
	}
}

// A file of a layer that had a second name elsewhere would change its number when a
// workspace over it writes to it, and what has it open could not be put to sleep.
func TestMergedFilesHaveNoOtherName(t *testing.T) {
	asRoot(t)
	lower, upper, to := t.TempDir(), t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(lower, "below"), []byte("below"), 0o600))
	must(t, os.WriteFile(filepath.Join(upper, "above"), []byte("above"), 0o640))
	must(t, layer.Merge(t.Context(), []string{lower, upper}, plenty, to))
	for _, name := range []string{filepath.Join(lower, "below"), filepath.Join(upper, "above"), filepath.Join(to, "below"), filepath.Join(to, "above")} {
		var s unix.Stat_t
		must(t, unix.Lstat(name, &s))
		if s.Nlink != 1 {
			t.Errorf("%s has %d names", name, s.Nlink)
		}
	}
	b, err := os.ReadFile(filepath.Join(to, "above"))
	if must(t, err); string(b) != "above" {
		t.Errorf("above says %q", b)
	}
}
