//go:build linux

package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// deep makes directories that lie in each other, and files in the last of them.
func deep(t testing.TB, at string, dirs []string, files int) {
	t.Helper()
	dir, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for _, name := range dirs {
		must(t, unix.Mkdirat(dir, name, 0o755))
		below, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, errors.Join(err, unix.Close(dir)))
		dir = below
	}
	for n := range files {
		f, err := unix.Openat(dir, fmt.Sprint(n), unix.O_WRONLY|unix.O_CREAT, 0o644)
		must(t, errors.Join(err, unix.Close(f)))
	}
	must(t, unix.Close(dir))
}

// made keeps a layer that is made by hand.
func (h *home) made(fill func(at string)) dormouse.Layer {
	h.t.Helper()
	g := h.staged()
	fill(g.Dir)
	l, err := h.Put(h.t.Context(), g)
	must(h.t, err)
	return l
}

// comesBack fails unless a chain can be compacted, mounted, and mounted again from its
// blobs alone, and always shows the same.
func (h *home) comesBack(line []dormouse.Layer) {
	h.t.Helper()
	must(h.t, h.Compact(h.t.Context(), line))
	short := h.Compacted(line)
	h.t.Logf("%d layers, %d when compacted", len(line), len(short))
	for n, line := range [][]dormouse.Layer{line, short} {
		dirs := h.use(uint64(n), line...)
		if len(dirs) > snapshot.MaxMounted {
			h.t.Errorf("%d directories are mounted", len(dirs))
		}
		single, done, err := h.View(h.t.Context(), line)
		must(h.t, err)
		must(h.t, layer.Compare(h.t.Context(), dirs, single, layer.Unlimited, func(c layer.Change) { h.t.Errorf("%.100q is not the same", c.Path) }))
		done()
		if n == 0 {
			h.forget()
			continue
		}
		flat := filepath.Join(h.t.TempDir(), "flat") // as a sandbox without overlays has it
		must(h.t, os.Mkdir(flat, 0o700))
		must(h.t, layer.Flatten(h.t.Context(), dirs, layer.Unlimited, flat))
		must(h.t, layer.Compare(h.t.Context(), dirs, []string{flat}, layer.Unlimited, func(c layer.Change) { h.t.Errorf("%.100q is not the same when flattened", c.Path) }))
		must(h.t, beneath.At(flat).Remove())
	}
	h.forget() // of directories that os.RemoveAll cannot remove
	h.Removed()
}

// Whatever was kept within the limits of a layer can always be compacted and mounted,
// however many such layers a chain has.
func TestAChainOfLayersAtTheirLimitsIsRestored(t *testing.T) {
	limits := layer.Limits{Entries: 10, Bytes: 16 << 10, Paths: 2 << 10}
	type chosen = func(t *testing.T, at string, n int)
	for name, fill := range map[string]chosen{
		"entries": func(t *testing.T, at string, n int) {
			for i := range limits.Entries - 1 {
				fill(t, at, fmt.Sprintf("%d-%d", n, i), "")
			}
		},
		"bytes": func(t *testing.T, at string, n int) { fill(t, at, fmt.Sprint(n), noise(n, int(limits.Bytes))) },
		"bytes of names of one file": func(t *testing.T, at string, n int) {
			fill(t, at, fmt.Sprint(n), noise(n, int(limits.Bytes)/4))
			for i := range 3 {
				must(t, os.Link(filepath.Join(at, fmt.Sprint(n)), filepath.Join(at, fmt.Sprintf("%d-%d", n, i))))
			}
		},
		"paths": func(t *testing.T, at string, n int) {
			left := int(limits.Paths) - 1
			for i := 0; left > 0; i++ {
				name := fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("p", 230))
				name = name[:min(len(name), left)]
				left -= len(name)
				fill(t, at, name, "")
			}
		},
		"paths that are there again": func(t *testing.T, at string, n int) {
			for i := range 6 {
				fill(t, at, fmt.Sprint(i, strings.Repeat("p", 250)), fmt.Sprint(n))
			}
		},
		"depth": func(t *testing.T, at string, n int) {
			deep(t, at, append([]string{fmt.Sprint(n)}, strings.Split(strings.Repeat("d", limits.Entries-2), "")...), 0)
		},
		"attributes": func(t *testing.T, at string, n int) {
			fill(t, at, fmt.Sprint(n), "", "d/", "", fmt.Sprint("d/", n), "")
			for i, name := range []string{fmt.Sprint(n), "d"} {
				if i == 1 && n%2 == 1 {
					must(t, unix.Setxattr(filepath.Join(at, name), "trusted.overlay.opaque", []byte("y"), 0))
				}
				for size := 3800; size > 0; size /= 2 { // as much as fits
					_ = unix.Setxattr(filepath.Join(at, name), fmt.Sprint("user.", size), []byte(noise(n, size)), 0)
				}
			}
		},
		"hidden": func(t *testing.T, at string, n int) {
			for i := range limits.Entries - 2 {
				if fill(t, at, fmt.Sprint([]string{"-", ""}[(i+n)%2], i), fmt.Sprint(n)); i == 0 {
					fill(t, at, fmt.Sprint("new-", n), "")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, func(o *snapshot.Options) {
				if o.Limits = limits; name == "attributes" { // which nothing else keeps from being merged
					o.Limits.Entries, o.Limits.Paths = 1000, 0
				}
			})
			var line []dormouse.Layer
			for n := range snapshot.MaxMounted + 2 {
				line = append(line, h.made(func(at string) { fill(t, at, n) }))
			}
			h.comesBack(line)
		})
	}
}

// Four layers whose paths are too long for one are left, and those above them become
// few.
func TestLongPathsDoNotStopTheCompactionOfTheRest(t *testing.T) {
	const most = 4 << 20
	h := open(t, func(o *snapshot.Options) { o.Limits.Paths = most })
	dirs := strings.Split(strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 250)+"/", 44), "/"), "/")
	var line []dormouse.Layer
	for n := range 4 {
		l := h.made(func(at string) { deep(t, at, append([]string{fmt.Sprint("long", n)}, dirs...), 100) })
		if l.Paths < most/4 || l.Paths > most {
			t.Fatalf("%d bytes of paths are no case of this", l.Paths)
		}
		line = append(line, l)
	}
	for n := range 61 {
		line = append(line, h.keep(fmt.Sprint("f", n), ""))
	}
	h.comesBack(line)
	if short := h.Compacted(line); len(short) > 4+8 {
		t.Errorf("%d layers are left of %d", len(short), len(line))
	}
}

// A layer that was kept before paths were counted may have as many as are allowed. A
// few entries cannot.
func TestALayerWhosePathsWereNotCountedIsTakenForTheMost(t *testing.T) {
	h := open(t, func(o *snapshot.Options) { o.Limits.Paths = 64 << 10 })
	var few, many []dormouse.Layer
	for n := range 4 {
		few = append(few, h.keep(fmt.Sprint("f", n), ""))
		many = append(many, h.made(func(at string) { deep(t, at, []string{fmt.Sprint(n)}, 30) }))
		few[n].Paths, many[n].Paths = 0, 0
	}
	h.comesBack(few)
	h.comesBack(many)
	if got := len(h.Compacted(few)); got != 1 {
		t.Errorf("of four layers of one file %d are left", got)
	}
	if got := len(h.Compacted(many)); got != 4 {
		t.Errorf("of four layers that may be too much for one %d are left", got)
	}
}

// A run that turns out not to be one layer is passed over, and not tried each time.
func TestARunThatCannotBeMergedIsPassedOver(t *testing.T) {
	h := open(t, func(o *snapshot.Options) { o.Limits = layer.Limits{Entries: 100, Bytes: 64 << 10} })
	var line []dormouse.Layer
	for n := range 4 {
		// What is one file here is four when it is mounted.
		line = append(line, h.made(func(at string) {
			fill(t, at, fmt.Sprint("large", n), noise(n, 12<<10))
			for i := range 3 {
				must(t, os.Link(filepath.Join(at, fmt.Sprint("large", n)), filepath.Join(at, fmt.Sprintf("large%d-%d", n, i))))
			}
		}))
	}
	for n := range 16 {
		line = append(line, h.keep(fmt.Sprint("f", n), fmt.Sprint(n)))
	}
	must(t, h.Compact(t.Context(), line))
	if got := len(h.Compacted(line)); got != 4+1 {
		t.Errorf("%d layers are left", got)
	}
	h.forget()
	opened := &counting{Store: h.blobs}
	again := openAt(t, h.dir, opened, func(o *snapshot.Options) { o.Limits = layer.Limits{Entries: 100, Bytes: 64 << 10} })
	must(t, again.Compact(t.Context(), line))
	if opened.n > 0 {
		t.Errorf("%d blobs were opened to try again", opened.n)
	}
	// A layer that is lost is in the way of runs that lie over it, and of no others.
	lost := h.keep("lost", noise(9, 20<<10))
	must(t, h.blobs.Delete(t.Context(), lost.Digest))
	h.forget()
	broken := []dormouse.Layer{h.keep("a", "1"), h.keep("b", "1"), h.keep("c", "1"), h.keep("d", "1"), lost}
	for n := range 3 {
		broken = append(broken, h.keep(fmt.Sprint("over", n), noise(n, 20<<10)))
	}
	if err := h.Compact(t.Context(), broken); !errors.Is(err, dormouse.ErrNotFound) {
		t.Errorf("compact = %v, want ErrNotFound", err)
	}
}

// A layer that was kept can be fetched, whatever the file system that it was made on
// keeps of a file: this one keeps any time.
func TestWhatWasPutCanBeFetched(t *testing.T) {
	asRoot(t)
	at := t.TempDir()
	must(t, unix.Mount("none", at, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	h := openAt(t, filepath.Join(at, "snapshots"), open(t).blobs)
	g := h.staged("early", "1", "late", "2")
	for name, sec := range map[string]int64{"early": -1 << 40, "late": 1 << 40} {
		to := unix.Timespec{Sec: sec}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(g.Dir, name), []unix.Timespec{to, to}, 0))
	}
	l, err := h.Put(t.Context(), g)
	must(t, err)
	h.forget()
	if got := content(t, h.use(1, l)[0], "late"); got != "2" {
		t.Errorf("it says %q", got)
	}
}
