//go:build linux

package layer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// paths are those of the entries in a directory.
func paths(t *testing.T, dir string) []string {
	t.Helper()
	all, _, err := layer.Scan(t.Context(), dir, plenty)
	must(t, err)
	var names []string
	for _, e := range all[1:] {
		names = append(names, e.Path)
	}
	return names
}

// pass makes one pass, and fails unless all was still.
func pass(t *testing.T, c *layer.Capture, held ...string) {
	t.Helper()
	settled, err := c.Pass(t.Context(), held)
	must(t, err)
	if !settled {
		t.Error("something changes")
	}
}

func TestACaptureIsCorrectedByTheNextPass(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(from, name) }
	must(t, os.MkdirAll(in("dir/sub"), 0o755))
	for _, name := range []string{"file", "dir/sub/file", "becomes-dir", "linked", "goes"} {
		must(t, os.WriteFile(in(name), []byte(name), 0o600))
	}
	must(t, os.Link(in("linked"), in("link")))
	must(t, os.Symlink("file", in("becomes-file")))
	must(t, unix.Setxattr(in("dir"), "user.x", []byte("1"), 0))
	c := layer.NewCapture(beneath.At(from), to, nil, nil, plenty)
	pass(t, c)
	must(t, os.RemoveAll(in("dir/sub")))
	must(t, os.WriteFile(in("dir/sub"), []byte("now a file"), 0o640))
	must(t, os.Remove(in("becomes-dir")))
	must(t, os.MkdirAll(in("becomes-dir/deep"), 0o711))
	must(t, os.Remove(in("becomes-file")))
	must(t, os.WriteFile(in("becomes-file"), []byte("x"), 0o600))
	must(t, os.Remove(in("goes")))
	must(t, os.WriteFile(in("linked"), []byte("longer than before"), 0o600))
	must(t, unix.Removexattr(in("dir"), "user.x"))
	pass(t, c)
	if diff := cmp.Diff(describe(t, from), describe(t, to)); diff != "" {
		t.Errorf("the copy (-want +got):\n%s", diff)
	}
	var a, b unix.Stat_t
	must(t, unix.Stat(filepath.Join(to, "link"), &a))
	must(t, unix.Stat(filepath.Join(to, "linked"), &b))
	if a.Ino != b.Ino || a.Nlink != 2 {
		t.Errorf("one file has become %d and %d", a.Ino, b.Ino)
	}
	if c.Copied() == 0 {
		t.Error("nothing was copied")
	}
}

func TestWhatIsHeldIsCapturedAgain(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"held", "other"} {
		must(t, os.WriteFile(filepath.Join(from, name), []byte("0"), 0o600))
	}
	must(t, os.Link(filepath.Join(from, "held"), filepath.Join(from, "another name")))
	settle()
	capture := func(before layer.Index, held ...string) (layer.Index, []string) {
		t.Helper()
		to := t.TempDir()
		c := layer.NewCapture(beneath.At(from), to, before, nil, plenty)
		pass(t, c, held...)
		return c.Index(), paths(t, to)
	}
	before, _ := capture(nil)
	if _, got := capture(before); len(got) > 0 {
		t.Errorf("%q is new", got)
	}
	after, got := capture(before, "held", "not there")
	if diff := cmp.Diff([]string{"another name", "held"}, got); diff != "" {
		t.Errorf("with one that is held (-want +got):\n%s", diff)
	}
	// It may have changed until it was released.
	if _, got := capture(after); len(got) != 2 {
		t.Errorf("after that %q is new", got)
	}
}

// Whatever happens to a file while it is read, the next pass has it.
func TestAFileThatIsRewrittenAllTheTimeIsCaptured(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	name := filepath.Join(from, "file")
	over, done := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			select {
			case <-over:
				done <- nil
				return
			default:
				err = os.WriteFile(name, bytes.Repeat([]byte{byte(n)}, n%2*500_000), 0o600)
			}
		}
		done <- err
	}()
	c := layer.NewCapture(beneath.At(from), to, nil, nil, plenty)
	for range 3000 {
		if _, err := c.Pass(t.Context(), nil); err != nil {
			t.Error(err)
			break
		}
	}
	close(over)
	must(t, <-done)
	pass(t, c)
	if diff := cmp.Diff(describe(t, from), describe(t, to)); diff != "" {
		t.Errorf("the copy (-want +got):\n%s", diff)
	}
}

// settle waits until a change has another time than those before it.
func settle() { time.Sleep(50 * time.Millisecond) }

func TestAChangeInTheSameInstantIsSeenByTheNextCapture(t *testing.T) {
	from := t.TempDir()
	name := filepath.Join(from, "file")
	at := time.Unix(1, 0)
	for n := range 50 {
		must(t, os.WriteFile(name, fmt.Appendf(nil, "%02d", n), 0o600))
		must(t, os.Chtimes(name, at, at))
		c := layer.NewCapture(beneath.At(from), t.TempDir(), nil, nil, plenty)
		pass(t, c)
		must(t, os.WriteFile(name, fmt.Appendf(nil, "%02d", n+50), 0o600))
		must(t, os.Chtimes(name, at, at))
		to := t.TempDir()
		pass(t, layer.NewCapture(beneath.At(from), to, c.Index(), nil, plenty))
		raw, err := os.ReadFile(filepath.Join(to, "file"))
		if err != nil || string(raw) != fmt.Sprintf("%02d", n+50) {
			t.Fatalf("captured %q, %v", raw, err)
		}
	}
}

// What has just been changed is copied again by the next pass: it may have been
// changed once more at what is the same time to its file system.
func TestWhatHasJustChangedIsCopiedAgain(t *testing.T) {
	from := t.TempDir()
	must(t, os.WriteFile(filepath.Join(from, "old"), []byte("1"), 0o600))
	settle()
	const tries = 100 // a pass may begin late
	for range tries {
		to := t.TempDir()
		must(t, os.WriteFile(filepath.Join(from, "file"), []byte("1"), 0o600))
		c := layer.NewCapture(beneath.At(from), to, nil, nil, plenty)
		pass(t, c)
		for _, name := range []string{"old", "file"} { // as if nothing showed that they changed
			must(t, os.WriteFile(filepath.Join(to, name), []byte("0"), 0o600))
		}
		pass(t, c)
		old, err := os.ReadFile(filepath.Join(to, "old"))
		must(t, err)
		file, err := os.ReadFile(filepath.Join(to, "file"))
		must(t, err)
		if string(old) != "0" {
			t.Fatal("what was old was copied again")
		}
		if string(file) == "1" {
			return
		}
	}
	t.Error("what had just changed was not copied again")
}

func TestACaptureSaysWhatItWroteAndWhatItLeft(t *testing.T) {
	asRoot(t)
	from, to, below := t.TempDir(), t.TempDir(), []string{t.TempDir(), t.TempDir(), t.TempDir()}
	must(t, os.WriteFile(filepath.Join(from, "file"), []byte("12345"), 0o600))
	must(t, os.Mkdir(filepath.Join(from, "dir"), 0o755))
	for _, name := range []string{"null", "dir/null", "dir/new"} {
		must(t, unix.Mknod(filepath.Join(from, name), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	}
	must(t, os.WriteFile(filepath.Join(below[0], "null"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(below[0], "dir"), 0o755))
	must(t, os.WriteFile(filepath.Join(below[0], "dir/null"), nil, 0o600))
	must(t, os.Symlink("elsewhere", filepath.Join(below[1], "dir"))) // so that nothing is below
	settle()
	c := layer.NewCapture(beneath.At(from), to, nil, below, plenty)
	pass(t, c)
	if entries, bytes := c.Written(); entries != 4 || bytes != 5 || len(c.Skipped()) != 3 || c.Skipped()[0].Path != "dir/new" {
		t.Errorf("written %d, %d bytes, left %v", entries, bytes, c.Skipped())
	}
	if diff := cmp.Diff([]string{"dir", "file", "null"}, paths(t, to)); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	var at unix.Stat_t
	if err := unix.Lstat(filepath.Join(to, "null"), &at); err != nil || at.Mode&unix.S_IFMT != unix.S_IFCHR || at.Rdev != 0 {
		t.Errorf("a device does not hide what is below: %o %d, %v", at.Mode, at.Rdev, err)
	}
	again := layer.NewCapture(beneath.At(from), t.TempDir(), c.Index(), below, plenty)
	pass(t, again)
	if entries, bytes := again.Written(); entries != 0 || bytes != 0 {
		t.Errorf("of what has not changed %d entries and %d bytes were written", entries, bytes)
	}
	for want, l := range map[error]layer.Limits{layer.ErrTooBig: {Entries: 10, Bytes: 4}, layer.ErrTooMany: {Entries: 1, Bytes: 10}} {
		if _, err := layer.NewCapture(beneath.At(from), t.TempDir(), nil, nil, l).Pass(t.Context(), nil); !errors.Is(err, want) {
			t.Errorf("with %+v: %v", l, err)
		}
	}
}

func TestAFlatCopySharesNothing(t *testing.T) {
	asRoot(t)
	w := &workspace{t: t, r: rand.New(rand.NewPCG(*seed, 7)), dir: t.TempDir()}
	w.mount()
	t.Cleanup(w.unmount)
	for range 3000 {
		w.step()
		if w.r.IntN(30) == 0 {
			w.snapshot()
		}
	}
	w.snapshot()
	last := w.points[len(w.points)-1]
	to := t.TempDir()
	must(t, layer.Flatten(t.Context(), last.line, plenty, to))
	if got := describe(t, to); got != last.tree {
		t.Errorf("it is not what was there:\n%s", difference(last.tree, got))
	}
	shared := make(map[uint64]bool)
	for _, dir := range last.line {
		all, _, err := layer.Scan(t.Context(), dir, plenty)
		must(t, err)
		for _, e := range all {
			shared[e.Inode] = true
		}
	}
	all, _, err := layer.Scan(t.Context(), to, plenty)
	must(t, err)
	for _, e := range all {
		if shared[e.Inode] {
			t.Errorf("%s is shared with a layer", e.Path)
		}
	}
}

func TestBaselinesAreOfOneDirectoryAndTheLastTwo(t *testing.T) {
	of, dir := t.TempDir(), filepath.Join(t.TempDir(), "marks")
	must(t, os.WriteFile(filepath.Join(of, "file"), nil, 0o600))
	index, _, err := layer.Scan(t.Context(), of, plenty)
	must(t, err)
	m := layer.Baselines{Dir: dir, Of: of}
	for _, name := range []string{"a", "b", "c", "c", "b", "d"} {
		must(t, m.Write(name, index, ""))
		if diff := cmp.Diff(index, m.Read(name, plenty)); diff != "" {
			t.Fatalf("mark %s (-want +got):\n%s", name, diff)
		}
	}
	names, err := os.ReadDir(dir)
	must(t, err)
	if len(names) != 2 || names[1].Name() != "d" {
		t.Errorf("there are %v", names)
	}
	for _, name := range []string{"x", "y", "z", "d"} { // none of which became a point
		must(t, m.Write(name, index, "b"))
		if m.Read("b", plenty) == nil {
			t.Fatalf("after %s the point that was compared with has no mark", name)
		}
	}
	if m.Read("a", plenty) != nil || m.Read("never", plenty) != nil {
		t.Error("a mark that is not there is read")
	}
	if (layer.Baselines{Dir: dir, Of: t.TempDir()}).Read("d", plenty) != nil {
		t.Error("a mark is read as one of another directory")
	}
	if m.Read("d", layer.Limits{Entries: 1}) != nil {
		t.Error("a mark is read that is too long")
	}
	for _, name := range []string{"", "../d", ".", ".new"} {
		if err := m.Write(name, index, ""); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "d"))
	must(t, err)
	for n := range raw {
		damaged := slices.Clone(raw)
		damaged[n] ^= 1
		must(t, os.WriteFile(filepath.Join(dir, "d"), damaged, 0o600))
		if m.Read("d", plenty) != nil {
			t.Fatalf("a mark is read of which byte %d is damaged", n)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "d"), raw[:len(raw)-1], 0o600))
	if m.Read("d", plenty) != nil {
		t.Error("a mark is read that was cut off")
	}
}

// Whatever is read as an index is written as the same, and is one that a scan could
// have found.
func FuzzIndex(f *testing.F) {
	f.Add(layer.Index{{Path: ".", Kind: layer.Dir, Mode: 0o755, Inode: 2}, {Path: "a", Kind: layer.File, Size: 9}, {Path: "a b/c", Kind: layer.Whiteout}}.Encode())
	f.Add(layer.Index{{Path: ".", Kind: layer.Dir}, {Path: "../x", Kind: layer.File}}.Encode())
	f.Add(layer.Index{{Path: "a", Kind: layer.File}}.Encode())
	f.Add(layer.Index{{Path: ".", Kind: layer.Dir}, {Path: "b", Kind: layer.Unsupported}, {Path: "a", Kind: layer.File}}.Encode())
	f.Add([]byte("dormouse index 1\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		// A checksum does not stop an attacker from writing one.
		for _, raw := range [][]byte{raw, layer.Summed(raw)} {
			all, err := layer.DecodeIndex(raw, layer.Limits{Entries: 1000})
			if err != nil {
				continue
			}
			again, err := layer.DecodeIndex(all.Encode(), layer.Limits{Entries: 1000})
			if diff := cmp.Diff(all, again); err != nil || diff != "" {
				t.Errorf("what was read is written as something else, %v:\n%s", err, diff)
			}
			for n, e := range all {
				if n > 0 && (strings.HasPrefix(e.Path, "/") || strings.Contains("/"+e.Path+"/", "/../") || strings.Contains(e.Path, "\x00")) {
					t.Errorf("%q is no path", e.Path)
				}
			}
		}
	})
}

func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	for n := range 20000 {
		in := filepath.Join(dir, fmt.Sprint(n/100))
		must(b, os.MkdirAll(in, 0o755))
		must(b, os.WriteFile(filepath.Join(in, fmt.Sprint(n)), nil, 0o600))
	}
	for b.Loop() {
		_, _, err := layer.Scan(b.Context(), dir, plenty)
		must(b, err)
	}
}

func TestALookThatNobodyWaitsForEnds(t *testing.T) {
	dir, below := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	all, left, err := layer.Scan(t.Context(), dir, plenty)
	must(t, err)
	gone := errors.New("the session has ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, _, err := layer.Scan(ctx, dir, plenty); !errors.Is(err, gone) {
		t.Errorf("looked on: %v", err)
	}
	if _, err := layer.AddWhiteouts(ctx, all, left, []string{below}); !errors.Is(err, gone) {
		t.Errorf("looked on at what is below: %v", err)
	}
}
