//go:build linux

package powercut_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
)

// failOnce has the next request of a kind fail, and those after it succeed.
func failOnce(d *powercut.Disk, op powercut.Op) {
	failed := false
	d.Inject(func(r powercut.Request) error {
		if r.Op != op || failed {
			return nil
		}
		failed = true
		return syscall.EIO
	})
}

func TestFailedSyncDropsItsPagesAndReadsStillShowThem(t *testing.T) {
	d, shown, under := disk(t)
	const page = powercut.PageSize
	letters := func(s string) string {
		var b strings.Builder
		for _, c := range s {
			b.WriteString(strings.Repeat(string(c), page))
		}
		return b.String()
	}
	write := func(h *os.File, s string, at int64) {
		t.Helper()
		_, err := h.WriteAt([]byte(s), at*page)
		must(t, err)
	}
	begin := func(name string) *os.File {
		t.Helper()
		h, err := os.Create(filepath.Join(shown, name))
		must(t, err)
		write(h, letters("aaa"), 0)
		must(t, h.Sync())
		write(h, letters("b"), 1)
		failOnce(d, powercut.Sync)
		if err := h.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("the sync = %v", err)
		}
		return h
	}
	want := map[string]string{}

	h := begin("synced again")
	must(t, h.Sync())
	must(t, h.Close())
	if got := read(t, filepath.Join(shown, "synced again")); got != letters("aba") {
		t.Error("what was written cannot be read any more")
	}
	want["synced again"] = letters("aaa")

	h = begin("appended behind")
	write(h, letters("c"), 3)
	must(t, errors.Join(h.Sync(), h.Close()))
	want["appended behind"] = letters("aaac")

	h = begin("written again")
	write(h, "x", 1)
	must(t, errors.Join(h.Sync(), h.Close()))
	want["written again"] = letters("a") + "x" + letters("b")[1:] + letters("a")

	h = begin("truncated")
	must(t, h.Truncate(page))
	must(t, errors.Join(h.Sync(), h.Close()))
	want["truncated"] = letters("a")

	must(t, d.Cut(func(powercut.Unsynced) int { return page }))
	for name, want := range want {
		if got := read(t, filepath.Join(under, name)); got != want {
			t.Errorf("%s holds %d bytes, want %d: the pages begin with %q", name, len(got), len(want), firsts(got))
		}
	}
}

// firsts is the first letter of every page.
func firsts(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i += powercut.PageSize {
		b.WriteByte(s[i])
	}
	return b.String()
}

func TestNameIsLostWhenTheSyncOfItsDirectoryFailed(t *testing.T) {
	d, shown, under := disk(t)
	for _, name := range []string{"one.tmp", "two.tmp"} {
		h, err := os.Create(filepath.Join(shown, name))
		must(t, err)
		must(t, errors.Join(h.Sync(), h.Close()))
	}
	must(t, os.Rename(filepath.Join(shown, "one.tmp"), filepath.Join(shown, "one")))
	failOnce(d, powercut.SyncDir)
	if err := syncDir(shown); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the sync = %v", err)
	}
	must(t, os.Rename(filepath.Join(shown, "two.tmp"), filepath.Join(shown, "two")))
	must(t, syncDir(shown))
	must(t, d.Cut(nil))
	for name, want := range map[string]bool{"one": false, "one.tmp": true, "two": true, "two.tmp": false} {
		if _, err := os.Stat(filepath.Join(under, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}
