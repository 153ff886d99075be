//go:build linux

package powercut_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
)

// disk is a mounted directory: where it is shown, and where it really is.
func disk(t *testing.T) (d *powercut.Disk, shown, under string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse")
	}
	under, shown = t.TempDir(), t.TempDir()
	d, err := powercut.Mount(under, shown)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, shown, under
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func TestOnlyWhatWasSyncedSurvives(t *testing.T) {
	d, shown, under := disk(t)
	long := strings.Repeat("durable ", 3000)
	write := func(name string, f func(*os.File)) {
		h, err := os.OpenFile(filepath.Join(shown, name), os.O_RDWR|os.O_CREATE, 0o600)
		must(t, err)
		_, err = h.WriteString(long)
		must(t, err)
		must(t, h.Sync())
		f(h)
		must(t, h.Close())
	}
	put := func(h *os.File, s string, off int64) {
		_, err := h.WriteAt([]byte(s), off)
		must(t, err)
	}
	write("overwritten", func(h *os.File) { put(h, "lost", 5000) })
	write("appended", func(h *os.File) { put(h, strings.Repeat("lost", 3000), int64(len(long))) })
	write("holed", func(h *os.File) { put(h, "lost", int64(len(long)+100_000)) })
	write("truncated", func(h *os.File) { must(t, h.Truncate(3)) })
	write("regrown", func(h *os.File) { must(t, h.Truncate(3)); must(t, h.Truncate(50_000)); put(h, "lost", 9000) })
	write("emptied", func(*os.File) { must(t, os.WriteFile(filepath.Join(shown, "emptied"), []byte("lost"), 0o600)) })
	write("renamed.tmp", func(h *os.File) {
		put(h, "lost", 0)
		must(t, os.Rename(filepath.Join(shown, "renamed.tmp"), filepath.Join(shown, "renamed")))
		must(t, syncDir(shown))
	})
	write("removed", func(h *os.File) { put(h, "lost", 0); must(t, os.Remove(filepath.Join(shown, "removed"))) })
	write("synced", func(h *os.File) { put(h, "kept", 0); must(t, unix.Fdatasync(int(h.Fd()))) })
	must(t, os.WriteFile(filepath.Join(shown, "new"), []byte("lost"), 0o600))

	if got := read(t, filepath.Join(shown, "overwritten")); !strings.Contains(got, "lost") {
		t.Error("what was written cannot be read before the cut")
	}
	if d.Unsynced() == 0 {
		t.Error("nothing is said to be unsynced")
	}
	must(t, d.Cut(nil))
	want := map[string]string{"new": "", "synced": "kept" + long[4:]}
	for _, name := range []string{"overwritten", "appended", "holed", "truncated", "regrown", "emptied", "renamed"} {
		want[name] = long
	}
	for name, want := range want {
		if got := read(t, filepath.Join(under, name)); got != want {
			t.Errorf("%s holds %d bytes, want the %d durable ones: %.40q", name, len(got), len(want), got)
		}
	}
	if _, err := os.Stat(filepath.Join(under, "removed")); !os.IsNotExist(err) {
		t.Errorf("a removed file came back: %v", err)
	}
	if err := os.WriteFile(filepath.Join(shown, "after"), []byte("x"), 0o600); err == nil {
		t.Error("something was written after the cut")
	}
}

func TestPagesMayReachTheDiskInAnyOrder(t *testing.T) {
	d, shown, under := disk(t)
	h, err := os.Create(filepath.Join(shown, "f"))
	must(t, err)
	_, err = h.Write(bytes.Repeat([]byte("a"), 2*4096))
	must(t, err)
	must(t, h.Sync())
	_, err = h.WriteAt(bytes.Repeat([]byte("b"), 4*4096), 0)
	must(t, err)
	must(t, h.Close())
	must(t, d.Cut(func(u powercut.Unsynced) int { return []int{0, powercut.PageSize, 0, 512}[u.Page] }))
	want := strings.Repeat("a", 4096) + strings.Repeat("b", 4096) + strings.Repeat("\x00", 4096) + strings.Repeat("b", 512)
	if got := read(t, filepath.Join(under, "f")); got != want {
		t.Errorf("the file holds %d bytes, want the second page and the beginning of the last", len(got))
	}
}

func TestSharedMappingIsSeenByEveryone(t *testing.T) {
	_, shown, _ := disk(t)
	path := filepath.Join(shown, "shm")
	must(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	var maps [2][]byte
	for i := range maps {
		h, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		// Populated, since a page fault outside a system call would hold up the
		// runtime that has to answer it.
		maps[i], err = unix.Mmap(int(h.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		must(t, err)
		must(t, h.Close())
		defer func() { must(t, unix.Munmap(maps[i])) }()
	}
	copy(maps[0][5000:], "seen")
	if got := string(maps[1][5000:5004]); got != "seen" {
		t.Errorf("the other mapping holds %q", got)
	}
}
