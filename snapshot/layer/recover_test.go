//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// cutOff is a workspace over a base, of which a snapshot was taken, which was synced then
// and perhaps later, and which was still written to when the power failed.
type cutOff struct {
	t                  *testing.T
	base, upper, taken string
	marked, synced     layer.Index
	outside            string
	begun, moved       []string
	restored           []layer.Restored
}

// files makes files of names and texts. A name that ends in a slash is a directory, one
// that begins with "-" is removed, and "!" hides what the base has.
func files(t *testing.T, dir string, all ...string) {
	t.Helper()
	for i := 0; i+1 < len(all); i += 2 {
		name := strings.TrimLeft(all[i], "-!")
		at := filepath.Join(dir, name)
		switch {
		case strings.HasPrefix(all[i], "-"):
			must(t, os.RemoveAll(at))
		case strings.HasPrefix(all[i], "!"):
			must(t, os.RemoveAll(at))
			must(t, unix.Mknod(at, unix.S_IFCHR, 0))
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(at, 0o755))
		default:
			must(t, os.MkdirAll(filepath.Dir(at), 0o755))
			must(t, os.WriteFile(at, []byte(all[i+1]), 0o644))
		}
	}
}

// snap takes a snapshot of the workspace, which is synced.
func (c *cutOff) snap() {
	c.t.Helper()
	settle()
	c.taken = c.t.TempDir()
	taken := layer.NewCapture(beneath.At(c.upper), c.taken, nil, []string{c.base}, plenty)
	pass(c.t, taken)
	c.marked, c.synced = taken.Index(), nil
}

// sync notes what is synced without a snapshot.
func (c *cutOff) sync() {
	c.t.Helper()
	settle()
	var err error
	c.synced, _, err = layer.Scan(c.t.Context(), c.upper, plenty)
	must(c.t, err)
}

func (c *cutOff) restore() {
	c.t.Helper()
	must(c.t, c.tryRecover())
}

func (c *cutOff) recovery() *layer.Recovery {
	return &layer.Recovery{
		Interrupted: c.begun,
		Snapshot:    []string{c.base, c.taken}, Base: []string{c.base}, Upper: beneath.At(c.upper), AtSnapshot: c.marked, Synced: c.synced, Suffix: "T",
		Scratch: filepath.Join(filepath.Dir(c.upper), "recovering"), Outside: c.outside, Moved: func(path string) error {
			c.moved = append(c.moved, path)
			return nil
		},
	}
}

func (c *cutOff) tryRecover() error {
	c.t.Helper()
	r := c.recovery()
	defer r.Close()
	var err error
	c.restored, err = r.Plan(c.t.Context())
	must(c.t, err)
	return r.Apply(c.t.Context())
}

// shows is what the workspace shows: the texts of its files.
func (c *cutOff) shows() map[string]string {
	c.t.Helper()
	flat := c.t.TempDir()
	must(c.t, layer.Flatten(c.t.Context(), []string{c.base, c.upper}, plenty, flat))
	got := make(map[string]string)
	must(c.t, filepath.WalkDir(flat, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		name, _ := filepath.Rel(flat, path)
		got[name] = string(raw)
		return err
	}))
	return got
}

func TestWhatACutTookComesBackFromTheSnapshot(t *testing.T) {
	asRoot(t)
	type row = []string
	for name, test := range map[string]struct {
		base, before row // what the base has, and what was written over it before the snapshot
		synced       row // what was written after it and synced
		found        row // what else the cut has left
		want         row
		restored     []layer.Restored
	}{
		"nothing was lost": {
			base: row{"a", "1"}, before: row{"b", "2"}, want: row{"a", "1", "b", "2"},
		},
		"a file that is torn": {
			before: row{"b", "whole"}, found: row{"b", "who"}, want: row{"b", "whole", "b.found-T", "who"},
			restored: []layer.Restored{{Path: "b", SavedAs: "b.found-T"}},
		},
		"a file that is gone": {
			before: row{"d/b", "2"}, found: row{"-d/b", ""}, want: row{"d/b", "2"}, restored: []layer.Restored{{Path: "d/b"}},
		},
		"a directory that is gone": {
			before: row{"d/e/b", "2", "d/c", "3"}, found: row{"-d", ""}, want: row{"d/e/b", "2", "d/c", "3"},
			restored: []layer.Restored{{Path: "d"}, {Path: "d/c"}, {Path: "d/e"}, {Path: "d/e/b"}},
		},
		"a file that was changed and synced stays changed": {
			before: row{"b", "2", "c", "3"}, synced: row{"b", "changed by somebody"}, found: row{"c", "torn"},
			want:     row{"b", "changed by somebody", "c", "3", "c.found-T", "torn"},
			restored: []layer.Restored{{Path: "c", SavedAs: "c.found-T"}},
		},
		"a file that was removed and synced stays removed": {
			base: row{"a", "1"}, before: row{"b", "2", "c", "3"}, synced: row{"-b", "", "!a", ""}, found: row{"-c", ""}, want: row{"c", "3"},
			restored: []layer.Restored{{Path: "c"}},
		},
		"a file of the base that was hidden and not synced": {
			base: row{"a", "1", "d/x", "1", "d/y", "2"}, before: row{"d/x", "changed"}, found: row{"!a", "", "-d", "", "!d", ""},
			want:     row{"a", "1", "d/x", "changed", "d/y", "2"},
			restored: []layer.Restored{{Path: "a"}, {Path: "d"}, {Path: "d/x"}},
		},
		"what was hidden in the snapshot stays hidden": {
			base: row{"d/x", "1", "d/y", "2"}, before: row{"d/", "", "!d/x", ""}, found: row{"-d", "", "!d", ""}, want: row{"d/y", "2"},
			restored: []layer.Restored{{Path: "d"}},
		},
		"a copy of a file of the base is gone": {
			base: row{"d/a", "1"}, before: row{"d/a", "2"}, found: row{"-d", ""}, want: row{"d/a", "2"}, restored: []layer.Restored{{Path: "d/a"}},
		},
		"what is new stays": {
			before: row{"b", "2"}, found: row{"new", "n", "d/new", "n"}, want: row{"b", "2", "new", "n", "d/new", "n"},
		},
		"a directory where a file was": {
			before: row{"b", "2"}, found: row{"-b", "", "b/in", "n"}, want: row{"b", "2", "b.found-T/in", "n"},
			restored: []layer.Restored{{Path: "b", SavedAs: "b.found-T"}},
		},
		"a file where a directory was": {
			before: row{"d/x", "1"}, synced: row{"-d/x", ""}, found: row{"-d", "", "d", "file"}, want: row{"d/x", "1", "d.found-T", "file"},
			restored: []layer.Restored{{Path: "d", SavedAs: "d.found-T"}, {Path: "d/x"}},
		},
		"a name that is taken": {
			before: row{"b", "2", "b.found-T", "old"}, found: row{"b", "x"}, want: row{"b", "2", "b.found-T", "old", "b.found-T-1", "x"},
			restored: []layer.Restored{{Path: "b", SavedAs: "b.found-T-1"}},
		},
		"a name that was taken since": {
			before: row{"b", "2"}, found: row{"b", "x", "b.found-T", "new"}, want: row{"b", "2", "b.found-T", "new", "b.found-T-1", "x"},
			restored: []layer.Restored{{Path: "b", SavedAs: "b.found-T-1"}},
		},
		"what hid something in the snapshot is gone": {
			base: row{"a", "1", "d/x", "1", "d/y", "2"}, before: row{"b", "2", "!a", "", "d/", "", "!d/x", ""}, found: row{"-a", "", "-d", ""},
			want: row{"b", "2", "d/y", "2"},
		},
		"a new file in the place of what was hidden": {
			base: row{"d/x", "1"}, before: row{"b", "2", "!d", ""}, found: row{"-d", "", "d", "file"}, want: row{"b", "2", "d", "file"},
		},
		"a directory of the base in the place of a file": {
			base: row{"d/x", "1"}, before: row{"d", "file"}, found: row{"-d", ""}, want: row{"d", "file"}, restored: []layer.Restored{{Path: "d"}},
		},
		"a name of the base that is hidden": {
			base: row{"b.found-T", "old"}, before: row{"b", "2", "!b.found-T", ""}, found: row{"b", "x"}, want: row{"b", "2", "b.found-T-1", "x"},
			restored: []layer.Restored{{Path: "b", SavedAs: "b.found-T-1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cutOff{t: t, base: t.TempDir(), upper: t.TempDir()}
			files(t, c.base, test.base...)
			files(t, c.upper, test.before...)
			c.snap()
			if len(test.synced) > 0 {
				files(t, c.upper, test.synced...)
				c.sync()
			}
			files(t, c.upper, test.found...)
			c.restore()
			want := make(map[string]string)
			for i := 0; i+1 < len(test.want); i += 2 {
				want[test.want[i]] = test.want[i+1]
			}
			if diff := cmp.Diff(want, c.shows()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.restored, c.restored, cmp.Transformer("none", func(r []layer.Restored) []layer.Restored { return slices.Clip(r) })); diff != "" && len(test.restored)+len(c.restored) > 0 {
				t.Error(diff)
			}
			if c.restore(); len(c.restored) > 0 && len(test.synced) == 0 {
				t.Errorf("what is recovered is recovered again: %v", c.restored)
			}
		})
	}
}

// A directory that was removed and made again hides the layers below. If that was not
// synced, what it hides was not removed.
func TestWhatADirectoryHidesSinceIsRestored(t *testing.T) {
	asRoot(t)
	c := &cutOff{t: t, base: t.TempDir(), upper: t.TempDir()}
	files(t, c.base, "d/x", "1")
	files(t, c.upper, "d/y", "2")
	c.snap()
	must(t, unix.Setxattr(filepath.Join(c.upper, "d"), "trusted.overlay.opaque", []byte("y"), 0))
	c.restore()
	if diff := cmp.Diff(map[string]string{"d/x": "1", "d/y": "2"}, c.shows()); diff != "" {
		t.Error(diff)
	}
}

// A recovery that is killed when what was found is out of the way, and the snapshot's
// version not yet there, leaves a path that is gone as it was when it was last synced.
func TestRecoveryThatWasKilledIsFinished(t *testing.T) {
	asRoot(t)
	for name, test := range map[string]struct{ before, found []string }{
		"a file":                       {[]string{"b", "2", "other", "1"}, []string{"b", "new"}},
		"a directory, found is a file": {[]string{"b/in/x", "2", "b/y", "3", "other", "1"}, []string{"b", "new"}},
		"a file, found is a directory": {[]string{"b", "2", "other", "1"}, []string{"b/in", "new"}},
	} {
		for _, halfway := range []bool{false, true} {
			t.Run(fmt.Sprint(name, halfway), func(t *testing.T) {
				c := &cutOff{t: t, base: t.TempDir(), upper: t.TempDir()}
				files(t, c.upper, test.before...)
				c.snap()
				want := c.shows()
				files(t, c.upper, "-b", "")
				c.sync()
				files(t, c.upper, test.found...)
				r := c.recovery()
				_, err := r.Plan(t.Context())
				must(t, err)
				c.begun = r.Ambiguous()
				r.Close()
				must(t, os.Rename(filepath.Join(c.upper, "b"), filepath.Join(c.upper, "b.found-T")))
				if _, dir := want["b/y"]; dir && halfway { // and again, when the directory is back
					must(t, os.Mkdir(filepath.Join(c.upper, "b"), 0o755))
				}
				c.restore()
				got := c.shows()
				for path, text := range want {
					if got[path] != text {
						t.Errorf("%s is %q, want %q", path, got[path], text)
					}
				}
				if got["b.found-T"]+got["b.found-T/in"] != "new" {
					t.Errorf("what was found is not kept: %v", got)
				}
			})
		}
	}
}

// Where it is unknown what was synced, the snapshot's files come back, and nothing that was
// found is lost.
func TestWithoutANoteOfWhatWasSyncedTheSnapshotComesBack(t *testing.T) {
	asRoot(t)
	c := &cutOff{t: t, base: t.TempDir(), upper: t.TempDir()}
	files(t, c.upper, "a", "1", "b", "2")
	c.snap()
	files(t, c.upper, "a", "changed", "-b", "")
	c.marked, c.synced = nil, nil
	c.restore()
	if got := c.shows(); !maps.Equal(got, map[string]string{"a": "1", "a.found-T": "changed", "b": "2"}) {
		t.Errorf("it shows %v", got)
	}
}

// A file of which only bytes have changed since the snapshot is corrupt, whatever was synced
// since: file systems may write bytes and not that something was written.
func TestFileWithOldTimesAndOtherBytesIsCorrupt(t *testing.T) {
	asRoot(t)
	for name, synced := range map[string]bool{"nothing was synced since the snapshot": false, "something else was": true} {
		t.Run(name, func(t *testing.T) {
			c := &cutOff{t: t, base: t.TempDir(), upper: t.TempDir()}
			files(t, c.upper, "big", "AAAA", "by somebody", "1")
			c.snap()
			want := map[string]string{"big": "AAAA", "big.found-T": "BBAA", "by somebody": "1"}
			if synced {
				files(t, c.upper, "by somebody", "2")
				c.sync()
				want["by somebody"] = "2"
			}
			files(t, c.upper, "big", "BBAA")
			at, _, err := layer.Scan(t.Context(), c.upper, plenty) // the cut has taken its new times
			must(t, err)
			for _, all := range []layer.Index{c.marked, c.synced} {
				for i := range all {
					if all[i].Path == "big" {
						all[i] = at[1]
					}
				}
			}
			c.restore()
			if diff := cmp.Diff(want, c.shows()); diff != "" {
				t.Error(diff)
			}
			if want := []layer.Restored{{Path: "big", SavedAs: "big.found-T"}}; !slices.Equal(c.restored, want) {
				t.Errorf("restored is %v, want %v", c.restored, want)
			}
		})
	}
}

// What was written since the snapshot may be more than a layer may hold.
func TestRecoveryTakesWhateverElseIsInTheDirectory(t *testing.T) {
	asRoot(t)
	c := &cutOff{t: t, base: t.TempDir(), upper: t.TempDir()}
	files(t, c.upper, "a", "1", "b", "2")
	c.snap()
	files(t, c.upper, "a", "torn")
	dir, err := beneath.Open(c.upper)
	must(t, err)
	for range 12 {
		name := strings.Repeat("d", 250)
		must(t, unix.Mkdirat(int(dir.Fd()), name, 0o700))
		next, err := dir.Dir(name)
		must(t, errors.Join(err, dir.Close()))
		dir = next
	}
	const bytes = 64 << 20 // of paths, which no scan takes
	for n := range bytes / (12 * 250) {
		must(t, unix.Mknodat(int(dir.Fd()), fmt.Sprint(n), unix.S_IFREG|0o600, 0))
	}
	must(t, dir.Close())
	if _, _, err := layer.Scan(t.Context(), c.upper, plenty); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("as a layer it is %v, want %v", err, layer.ErrTooMany)
	}
	c.restore()
	for name, want := range map[string]string{"a": "1", "a.found-T": "torn", "b": "2"} {
		if got, err := os.ReadFile(filepath.Join(c.upper, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
}

// small is an empty directory of a file system of its own.
func small(t *testing.T, mib int) string {
	t.Helper()
	at := t.TempDir()
	must(t, unix.Mount("tmpfs", at, "tmpfs", 0, fmt.Sprintf("size=%dm,nr_inodes=64", mib)))
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	upper := filepath.Join(at, "upper")
	must(t, os.Mkdir(upper, 0o755))
	return upper
}

// Where there is no space for both, the snapshot's file is put back and the one found is
// kept elsewhere; without such a place nothing changes, however often it is tried.
func TestFoundFilesThatDoNotFitAreMovedOutside(t *testing.T) {
	asRoot(t)
	c := &cutOff{t: t, base: t.TempDir(), upper: small(t, 8)}
	old, torn := strings.Repeat("o", 3<<20), strings.Repeat("t", 3<<20)
	files(t, c.upper, "d/one", old, "d/two", old, "small", "1")
	c.snap()
	files(t, c.upper, "d/one", torn, "d/two", torn, "small", "2")
	for range 3 {
		if err := c.tryRecover(); !errors.Is(err, layer.ErrNoSpace) {
			t.Fatalf("it is brought back with %v, want %v", err, layer.ErrNoSpace)
		}
		if diff := cmp.Diff(map[string]string{"d/one": torn, "d/two": torn, "small": "2"}, c.shows()); diff != "" {
			t.Fatalf("a recovery that has no room changes files")
		}
	}
	c.outside = filepath.Join(t.TempDir(), "found")
	c.restore()
	if !maps.Equal(c.shows(), map[string]string{"d/one": old, "d/two": old, "small": "1", "small.found-T": "2"}) {
		t.Error("the files are not those of the snapshot")
	}
	if want := []string{"d/one", "d/two"}; !slices.Equal(c.moved, want) {
		t.Errorf("%q was moved outside, want %q", c.moved, want)
	}
	for _, name := range c.moved {
		if got, err := os.ReadFile(filepath.Join(c.outside, name)); err != nil || string(got) != torn {
			t.Errorf("outside %s holds %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(c.upper), "recovering")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	if c.restore(); len(c.restored) > 0 {
		t.Errorf("what is recovered is recovered again: %v", c.restored)
	}
}

// Files with several names have them again, and what no layer carries is kept like
// anything else.
func TestWhatComesBackIsOfEveryKind(t *testing.T) {
	asRoot(t)
	c := &cutOff{t: t, base: t.TempDir(), upper: t.TempDir()}
	files(t, c.upper, "a", "1", "socket", "a file", "d/in", "2")
	must(t, os.Link(filepath.Join(c.upper, "a"), filepath.Join(c.upper, "d/b")))
	must(t, os.Symlink("to", filepath.Join(c.upper, "link")))
	must(t, unix.Mkfifo(filepath.Join(c.upper, "fifo"), 0o640))
	c.snap()
	files(t, c.upper, "-a", "", "-d", "", "-link", "", "link", "torn", "-fifo", "", "-socket", "")
	must(t, unix.Mknod(filepath.Join(c.upper, "socket"), unix.S_IFSOCK|0o600, 0))
	c.restore()
	var a, b unix.Stat_t
	must(t, errors.Join(unix.Stat(filepath.Join(c.upper, "a"), &a), unix.Stat(filepath.Join(c.upper, "d/b"), &b)))
	if a.Ino != b.Ino {
		t.Error("a file has two names no more")
	}
	if to, err := os.Readlink(filepath.Join(c.upper, "link")); err != nil || to != "to" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if at, err := os.Lstat(filepath.Join(c.upper, "fifo")); err != nil || at.Mode() != fs.ModeNamedPipe|0o640 {
		t.Errorf("the pipe is %v, %v", at, err)
	}
	if at, err := os.Lstat(filepath.Join(c.upper, "socket.found-T")); err != nil || at.Mode().Type() != fs.ModeSocket {
		t.Errorf("the socket is %v, %v", at, err)
	}
}

// Marks say after another start of the machine what was synced, but not what changed
// since.
func TestBaselinesTellWhatWasSyncedBeforeAReboot(t *testing.T) {
	of := t.TempDir()
	files(t, of, "a", "1")
	m := layer.Baselines{Dir: filepath.Join(t.TempDir(), "marks"), Of: of}
	if at, later, when := m.Synced("snap_1", plenty); at != nil || later != nil || !when.IsZero() {
		t.Errorf("without a mark: %v, %v, %v", at, later, when)
	}
	all, _, err := layer.Scan(t.Context(), of, plenty)
	must(t, err)
	must(t, m.Write("snap_1", all, ""))
	name := filepath.Join(m.Dir, "snap_1")
	raw, err := os.ReadFile(name)
	must(t, err)
	must(t, os.WriteFile(name, append([]byte("another"), raw...), 0o600))
	if m.Read("snap_1", plenty) != nil {
		t.Error("a mark of another start is compared with")
	}
	at, later, when := m.Synced("snap_1", plenty)
	if !slices.Equal(at, all) || later != nil || when.IsZero() {
		t.Errorf("synced is %v, %v, %v", at, later, when)
	}
	settle()
	must(t, m.Write("synced", all[:1], "snap_1"))
	if at, later, _ = m.Synced("snap_1", plenty); !slices.Equal(at, all) || !slices.Equal(later, all[:1]) {
		t.Errorf("synced after that is %v, %v", at, later)
	}
	if at, later, _ = m.Synced("snap_2", plenty); at != nil || !slices.Equal(later, all[:1]) {
		t.Errorf("of a point that is not marked, synced is %v, %v", at, later)
	}
	m.Of = t.TempDir()
	if at, later, _ := m.Synced("snap_1", plenty); at != nil || later != nil {
		t.Error("it is of another directory")
	}
	if _, err := os.Stat(filepath.Join(m.Dir, ".new")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something is left")
	}
}

// The last mark is known even if the clock was set back: the state of an earlier point is
// not taken for a user's change after a later one.
func TestBaselinesStayInOrderWhenTheClockIsSetBack(t *testing.T) {
	of := t.TempDir()
	m := layer.Baselines{Dir: filepath.Join(t.TempDir(), "marks"), Of: of}
	mark := func(name, since string) layer.Index {
		files(t, of, name, "")
		all, _, err := layer.Scan(t.Context(), of, plenty)
		must(t, err)
		must(t, m.Write(name, all, since))
		return all
	}
	setBack := func(name string) {
		ahead := time.Now().Add(time.Hour)
		must(t, os.Chtimes(filepath.Join(m.Dir, name), ahead, ahead))
	}
	mark("snap_1", "")
	setBack("snap_1")
	point := mark("snap_2", "snap_1")
	if at, later, _ := m.Synced("snap_2", plenty); !slices.Equal(at, point) || later != nil {
		t.Errorf("synced after the last point is %v", later)
	}
	setBack("snap_1")
	setBack("snap_2")
	synced := mark("synced", "snap_2")
	if at, later, _ := m.Synced("snap_2", plenty); !slices.Equal(at, point) || !slices.Equal(later, synced) {
		t.Errorf("synced is %v, and after that %v", at, later)
	}
}

// Programs that write to the directory choose how deep it is and what names begin with.
func TestRecoveryIsQuickWhateverPathsAreLike(t *testing.T) {
	const most = 20 * time.Second // of a processor; what looks at pairs takes minutes
	for what, fill := range map[string]func(dir beneath.Dir, mode uint32){
		"names that begin alike": func(dir beneath.Dir, mode uint32) {
			for i := range 8000 {
				f, err := dir.At(fmt.Sprintf("%s%08d", strings.Repeat("n", 240), i), unix.O_CREAT|unix.O_WRONLY)
				must(t, err)
				_, err = f.WriteString(strings.Repeat("x", int(mode)))
				must(t, errors.Join(err, f.Close()))
			}
		},
		"directories in each other": func(dir beneath.Dir, mode uint32) {
			for range 2000 {
				must(t, unix.Mkdirat(int(dir.Fd()), "a", mode))
				next, err := dir.Dir("a")
				must(t, errors.Join(err, dir.Close()))
				dir = next
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			base, point, upper := t.TempDir(), t.TempDir(), t.TempDir()
			for mode, at := range map[uint32]string{0o700: point, 0o755: upper} {
				dir, err := beneath.Open(at)
				must(t, err)
				fill(dir, mode)
				defer func() { must(t, beneath.At(at).Remove()) }()
			}
			synced, _, err := layer.Scan(t.Context(), point, plenty)
			must(t, err)
			r := &layer.Recovery{
				Snapshot: []string{base, point}, Base: []string{base}, Upper: beneath.At(upper), AtSnapshot: synced, Synced: synced, Suffix: "20060102T150405Z",
			}
			defer r.Close()
			began := processorTime(t)
			all, err := r.Plan(t.Context())
			must(t, err)
			if took := processorTime(t) - began; took > most {
				t.Errorf("%d paths took %v", len(all), took)
			}
			kept := make(map[string]bool)
			for _, f := range all {
				if f.SavedAs != "" && kept[f.SavedAs] {
					t.Fatalf("%q is kept twice", f.SavedAs)
				}
				kept[f.SavedAs] = true
			}
		})
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
