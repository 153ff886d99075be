//go:build linux

package layer_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
)

var (
	seed  = flag.Uint64("seed", 1, "of the random workspace")
	steps = flag.Int("steps", 1200, "of the random workspace")
)

var plenty = layer.Limits{Entries: 1 << 20, Bytes: 1 << 40}

// workspace is a directory that is written to at random, as a sandbox would: an
// overlay over the layers of the line so far.
type workspace struct {
	t      *testing.T
	r      *rand.Rand
	dir    string
	mounts int
	below  []string // the layers it lies over
	line   []string // all layers up to the last snapshot
	index  layer.Index
	points []point
}

// point is what was there at a snapshot.
type point struct {
	line []string
	tree string
}

// What was there at any snapshot can be brought back, byte for byte and attribute
// for attribute, whatever was done in between and since.
func TestALineBringsBackWhatWasThere(t *testing.T) {
	asRoot(t)
	w := &workspace{t: t, r: rand.New(rand.NewPCG(*seed, 1)), dir: t.TempDir()}
	w.mount()
	t.Cleanup(w.unmount)
	for n := range *steps {
		w.step()
		switch {
		case w.r.IntN(25) == 0:
			w.snapshot()
		case w.r.IntN(300) == 0:
			w.snapshot()
			w.seal()
		}
		if t.Failed() {
			t.Fatalf("after step %d", n)
		}
	}
	w.snapshot()
	for n, p := range w.points {
		if got := w.shown(p.line); got != p.tree {
			t.Fatalf("point %d, of %d layers, is not what was there:\n%s", n, len(p.line), difference(p.tree, got))
		}
	}
	t.Logf("%d points, %d layers", len(w.points), len(w.line))
}

func (w *workspace) at() string    { return filepath.Join(w.dir, fmt.Sprintf("m%d", w.mounts)) }
func (w *workspace) upper() string { return filepath.Join(w.dir, fmt.Sprintf("u%d", w.mounts)) }

func (w *workspace) mount() {
	w.t.Helper()
	if len(w.below) == 0 {
		w.below = []string{filepath.Join(w.dir, "empty")}
		must(w.t, os.MkdirAll(w.below[0], 0o755))
	}
	work := filepath.Join(w.dir, fmt.Sprintf("w%d", w.mounts))
	for _, dir := range []string{w.at(), w.upper(), work} {
		must(w.t, os.Mkdir(dir, 0o755))
	}
	w.overlay(w.at(), w.below, fmt.Sprintf(",upperdir=%s,workdir=%s", w.upper(), work))
}

// overlay mounts layers, the lowest first.
func (w *workspace) overlay(at string, layers []string, more string) {
	w.t.Helper()
	var short []string
	for _, dir := range slices.Backward(layers) {
		short = append(short, dir)
	}
	must(w.t, unix.Mount("overlay", at, "overlay", 0, "lowerdir="+strings.Join(short, ":")+more+",redirect_dir=off,metacopy=off"))
}

func (w *workspace) unmount() { must(w.t, unix.Unmount(w.at(), unix.MNT_DETACH)) }

// seal lays a new upper over all there is.
func (w *workspace) seal() {
	w.unmount()
	w.mounts++
	w.below, w.index = w.few(w.line), nil
	w.mount()
}

// few is the same line in fewer layers: all but the last few are merged.
func (w *workspace) few(line []string) []string {
	const most = 8
	if len(line) <= most {
		return line
	}
	to := filepath.Join(w.dir, fmt.Sprintf("merged%d", w.mounts))
	must(w.t, os.Mkdir(to, 0o700))
	must(w.t, layer.Merge(w.t.Context(), line[:len(line)-most], plenty, to))
	return append([]string{to}, line[len(line)-most:]...)
}

// snapshot takes what has changed since the last.
func (w *workspace) snapshot() {
	w.t.Helper()
	dir := filepath.Join(w.dir, fmt.Sprintf("l%d", len(w.line)))
	must(w.t, os.Mkdir(dir, 0o700))
	c := layer.NewCapture(w.upper(), dir, w.index, w.below, plenty)
	for range w.r.IntN(3) { // ahead of the one that counts
		_, err := c.Pass(w.t.Context(), []string{"a", "b", "nowhere"}[:w.r.IntN(4)])
		must(w.t, err)
		for range w.r.IntN(20) {
			w.step()
		}
	}
	settled, err := c.Pass(w.t.Context(), nil)
	must(w.t, err)
	if !settled || len(c.Left()) > 0 {
		w.t.Fatalf("settled is %v, %v was left", settled, c.Left())
	}
	index, err := layer.DecodeIndex(c.Index().Encode(), plenty)
	must(w.t, err)
	w.line, w.index = append(w.line, w.carried(dir)), index
	w.points = append(w.points, point{line: slices.Clone(w.line), tree: describe(w.t, w.at())})
}

// carried is a layer after it was packed and unpacked.
func (w *workspace) carried(dir string) string {
	w.t.Helper()
	var packed, again bytes.Buffer
	must(w.t, layer.Pack(w.t.Context(), dir, plenty, &packed))
	to := dir + "c"
	must(w.t, os.Mkdir(to, 0o700))
	must(w.t, layer.Unpack(w.t.Context(), bytes.NewReader(packed.Bytes()), plenty, to))
	must(w.t, layer.Pack(w.t.Context(), to, plenty, &again))
	if !bytes.Equal(packed.Bytes(), again.Bytes()) {
		w.t.Fatalf("%s is packed otherwise than what it was unpacked from", dir)
	}
	if w.r.IntN(2) == 0 {
		return to
	}
	return dir
}

// shown is what a line shows: mounted, or merged.
func (w *workspace) shown(line []string) string {
	w.t.Helper()
	at := filepath.Join(w.dir, "shown")
	must(w.t, os.RemoveAll(at))
	must(w.t, os.Mkdir(at, 0o755))
	if w.r.IntN(2) == 0 {
		must(w.t, layer.Merge(w.t.Context(), line, plenty, at))
		return describe(w.t, at)
	}
	w.overlay(at, append([]string{filepath.Join(w.dir, "empty")}, w.short(line)...), "")
	defer func() { must(w.t, unix.Unmount(at, unix.MNT_DETACH)) }()
	return describe(w.t, at)
}

// short is a line of at most as many layers as can be mounted.
func (w *workspace) short(line []string) []string {
	const most = 20
	if len(line) <= most {
		return line
	}
	to := w.t.TempDir()
	must(w.t, layer.Merge(w.t.Context(), line[:len(line)-most], plenty, to))
	return append([]string{to}, line[len(line)-most:]...)
}

// step does something to the workspace, and never through a link in it: that may
// lead anywhere.
func (w *workspace) step() {
	w.t.Helper()
	name, other := w.name(), w.name()
	if linked(w.at(), name) || linked(w.at(), other) {
		if w.r.IntN(3) == 0 {
			must(w.t, unlink(w.at(), name))
		}
		return
	}
	var err error
	switch w.r.IntN(20) {
	case 0, 1, 2:
		err = os.WriteFile(name, w.bytes(), w.mode())
	case 3, 4:
		err = w.change(name, os.O_APPEND|os.O_WRONLY, func(f *os.File) error { _, err := f.Write(w.bytes()); return err })
	case 5:
		err = os.Truncate(name, int64(w.r.IntN(5000)))
	case 6, 7:
		err = os.Rename(name, other)
	case 8:
		err = os.Link(name, other)
	case 9:
		err = os.Symlink(w.target(), name)
	case 10:
		err = os.Remove(name)
	case 11:
		err = os.RemoveAll(name)
	case 12:
		err = os.Chmod(name, w.mode())
	case 13:
		err = unix.Setxattr(name, fmt.Sprintf("user.x%d", w.r.IntN(3)), w.bytes()[:w.r.IntN(20)], 0)
	case 14:
		err = w.change(name, os.O_CREATE|os.O_WRONLY, func(f *os.File) error {
			_, err := f.WriteAt(w.bytes(), int64(w.r.IntN(8<<20)))
			return err
		})
	case 15, 16:
		err = os.MkdirAll(name, 0o700|w.mode())
	case 17: // a directory becomes a file, or a file a directory
		if i, e := os.Lstat(name); e == nil {
			must(w.t, os.RemoveAll(name))
			if i.IsDir() {
				err = os.WriteFile(name, w.bytes(), w.mode())
			} else {
				err = os.Mkdir(name, 0o755)
			}
		}
	case 18:
		err = errors.Join(os.Lchown(name, w.r.IntN(4), w.r.IntN(4)))
	case 19:
		err = os.Chtimes(name, time.Time{}, time.Unix(int64(w.r.IntN(1<<31)), int64(w.r.IntN(1e9))))
	}
	var failed *fs.PathError
	var linked *os.LinkError
	var number unix.Errno
	if err != nil && !errors.As(err, &failed) && !errors.As(err, &linked) && !errors.As(err, &number) {
		w.t.Fatal(err)
	}
}

// linked reports whether a path, or a directory that it is in, is a link.
func linked(root, name string) bool {
	for ; name != root; name = filepath.Dir(name) {
		if i, err := os.Lstat(name); err == nil && i.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// unlink removes the first link on a path.
func unlink(root, name string) error {
	for at := name; at != root; at = filepath.Dir(at) {
		if !linked(root, filepath.Dir(at)) && linked(root, at) {
			return os.Remove(at)
		}
	}
	return nil
}

// name is one of few, so that steps meet.
func (w *workspace) name() string {
	names := []string{"a", "b", "c", "deep", ".wh.x", "new\nline", "é"}
	parts := []string{w.at()}
	for range 1 + w.r.IntN(3) {
		parts = append(parts, names[w.r.IntN(len(names))])
	}
	return filepath.Join(parts...)
}

func (w *workspace) target() string {
	return []string{"a", "../b", "/nowhere/else", "nowhere", "."}[w.r.IntN(5)]
}

func (w *workspace) bytes() []byte {
	return bytes.Repeat([]byte{byte(w.r.IntN(256))}, 20+w.r.IntN(3000))
}

func (w *workspace) mode() os.FileMode {
	return []os.FileMode{0o644, 0o600, 0o755, 0, 0o777 | os.ModeSetuid, 0o755 | os.ModeSticky}[w.r.IntN(6)]
}

func (w *workspace) change(name string, flags int, do func(*os.File) error) error {
	if i, err := os.Lstat(name); err == nil && !i.Mode().IsRegular() {
		return nil // it would leave the workspace
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// describe writes down everything that can be seen of a tree.
func describe(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var s unix.Stat_t
		must(t, unix.Lstat(path, &s))
		name, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%q %o %d:%d %d.%09d", name, s.Mode, s.Uid, s.Gid, s.Mtim.Sec, s.Mtim.Nsec)
		switch {
		case d.Type().IsRegular():
			raw, err := os.ReadFile(path)
			must(t, err)
			fmt.Fprintf(&b, " %d %x", s.Size, sha256.Sum256(raw))
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			must(t, err)
			fmt.Fprintf(&b, " -> %q", to)
		}
		if d.Type().IsRegular() || d.IsDir() {
			for n := range 3 {
				value := make([]byte, 100)
				if size, err := unix.Lgetxattr(path, fmt.Sprintf("user.x%d", n), value); err == nil {
					fmt.Fprintf(&b, " x%d=%x", n, value[:size])
				}
			}
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

// difference shows the lines that only one of two has.
func difference(want, got string) string {
	var b strings.Builder
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			b.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(got) {
		if !strings.Contains(want, line) {
			b.WriteString("+ " + line)
		}
	}
	return b.String()
}

// asRoot leaves out what only root can do: overlays, devices, the files of others.
func asRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
