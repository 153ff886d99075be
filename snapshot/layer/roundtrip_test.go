//go:build linux

package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// memory is a directory on a file system that keeps more than others do: any time, and
// much more beside a file.
func memory(t testing.TB) string {
	t.Helper()
	asRoot(t)
	at := t.TempDir()
	must(t, unix.Mount("none", at, "tmpfs", 0, "size=64m,nr_inodes=200k"))
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	return at
}

// odd makes files that have whatever a file can have.
type odd struct {
	t     testing.TB
	r     *rand.Rand
	made  map[string]bool
	files []string
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// text is bytes that a name can have, also such as no text has.
func (o *odd) text(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(o.r.IntN(256))
		for b[i] == 0 || b[i] == '/' {
			b[i] = byte(o.r.IntN(256))
		}
	}
	return string(b)
}

func (o *odd) name() string {
	const longest = 255
	begin := pick(o.r, "", "", "", ".wh.", ".wh..wh.", ".dormouse.wh.", ".wh..wh..opq", " ", "..", "\n", "=")
	name := begin + o.text(pick(o.r, 1, 1+o.r.IntN(20), longest-len(begin)))
	return name[:min(len(name), longest)]
}

// place is a path that nothing has yet.
func (o *odd) place(dirs []string) string {
	for {
		path := filepath.Join(pick(o.r, dirs...), o.name())
		if !o.made[path] && len(path) < 3000 {
			o.made[path] = true
			return path
		}
	}
}

// fill makes a tree.
func (o *odd) fill(at string) {
	dirs := []string{at}
	for range 40 {
		path := o.place(dirs)
		switch o.r.IntN(7) {
		case 0, 1:
			must(o.t, os.Mkdir(path, 0o700))
			dirs = append(dirs, path)
			if o.r.IntN(3) == 0 {
				must(o.t, unix.Setxattr(path, "trusted.overlay.opaque", []byte("y"), 0))
			}
		case 2:
			must(o.t, os.Symlink(o.text(pick(o.r, 1, 100, 101, 4095)), path))
		case 3:
			must(o.t, unix.Mkfifo(path, 0o600))
		case 4:
			must(o.t, unix.Mknod(path, unix.S_IFCHR, 0))
			continue
		case 5:
			if len(o.files) > 0 {
				must(o.t, os.Link(pick(o.r, o.files...), path))
				continue
			}
			fallthrough
		default:
			o.file(path)
		}
		o.dress(path)
	}
	for _, dir := range dirs { // once all is in it
		o.stamp(dir)
	}
}

func (o *odd) file(path string) {
	f, err := os.Create(path)
	must(o.t, err)
	for range o.r.IntN(4) {
		_, err := f.WriteAt([]byte(o.text(o.r.IntN(5000))), int64(o.r.IntN(3<<20)))
		must(o.t, err)
	}
	if o.r.IntN(3) == 0 {
		must(o.t, f.Truncate(int64(o.r.IntN(4<<20))))
	}
	must(o.t, f.Close())
	o.files = append(o.files, path)
}

// dress gives a file what it has beside its content.
func (o *odd) dress(path string) {
	id := func() int { return pick(o.r, 0, o.r.IntN(1<<16), 1<<21, math.MaxInt32, math.MaxUint32-1) }
	must(o.t, os.Lchown(path, id(), id()))
	info, err := os.Lstat(path)
	must(o.t, err)
	if info.Mode()&os.ModeSymlink == 0 {
		must(o.t, unix.Chmod(path, uint32(o.r.IntN(0o10000))))
	}
	if info.Mode().IsRegular() || info.IsDir() {
		for range o.r.IntN(5) {
			size := pick(o.r, 0, o.r.IntN(100), o.r.IntN(3000))
			err := unix.Setxattr(path, "user."+o.text(1+o.r.IntN(200)), []byte(o.text(size)), 0)
			if err != nil && !errors.Is(err, unix.ENOSPC) {
				o.t.Fatal(err)
			}
		}
	}
	o.stamp(path)
}

func (o *odd) stamp(path string) {
	sec := pick(o.r, 0, 1, -1, math.MinInt32, math.MinInt32-1, math.MaxInt32+1, 1<<34-1<<31-1, 1<<34-1<<31, 1<<34, 1<<40, -1<<40, o.r.Int64N(1<<32))
	to := unix.Timespec{Sec: sec, Nsec: pick(o.r, 0, 1, 999_999_999, o.r.Int64N(1e9))}
	must(o.t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{to, to}, unix.AT_SYMLINK_NOFOLLOW))
}

// Whatever a file system holds and Pack takes, Unpack takes, with all that it has; and
// what was unpacked is packed and unpacked as the same.
func TestWhatIsPackedIsUnpacked(t *testing.T) {
	for name, newDir := range map[string]func(testing.TB) string{
		"from a disk": func(t testing.TB) string { return t.TempDir() }, "from memory": memory,
	} {
		t.Run(name, func(t *testing.T) {
			asRoot(t)
			for n := range uint64(12) {
				o := &odd{t: t, r: rand.New(rand.NewPCG(*seed, n)), made: map[string]bool{}}
				from, one, two := newDir(t), newDir(t), newDir(t)
				o.fill(from)
				var first, second bytes.Buffer
				must(t, layer.Pack(t.Context(), from, plenty, &first))
				must(t, layer.Verify(t.Context(), bytes.NewReader(first.Bytes()), plenty))
				must(t, layer.Unpack(t.Context(), bytes.NewReader(first.Bytes()), plenty, one))
				must(t, layer.Compare(t.Context(), []string{from}, []string{one}, plenty, func(c layer.Change) { t.Errorf("tree %d: %q is not the same", n, c.Path) }))
				must(t, layer.Pack(t.Context(), one, plenty, &second))
				must(t, layer.Unpack(t.Context(), bytes.NewReader(second.Bytes()), plenty, two))
				if was, is := listed(t, one), listed(t, two); was != is {
					t.Errorf("tree %d comes back as another:\n%s", n, difference(was, is))
				}
			}
		})
	}
}

// listed is all that can be seen of a tree, but for when names were hidden.
func listed(t testing.TB, dir string) string {
	t.Helper()
	all, err := layertest.Listing(dir)
	must(t, err)
	lines := strings.Split(all, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `" 20000 `) }), "\n")
}

// A time that not every file system has is packed as the nearest that they have.
func TestATimeThatNotAllFileSystemsHaveIsTheNearest(t *testing.T) {
	from, to := memory(t), t.TempDir()
	for name, sec := range map[string]int64{"early": -1 << 40, "late": 1 << 40, "last": 1<<34 - 1} {
		files(t, from, name, "")
		at := unix.Timespec{Sec: sec, Nsec: 7}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(from, name), []unix.Timespec{at, at}, 0))
	}
	var packed bytes.Buffer
	must(t, layer.Pack(t.Context(), from, plenty, &packed))
	must(t, layer.Unpack(t.Context(), &packed, plenty, to))
	for name, sec := range map[string]int64{"early": math.MinInt32, "late": 1<<34 - 1<<31 - 1, "last": 1<<34 - 1<<31 - 1} {
		var s unix.Stat_t
		if must(t, unix.Stat(filepath.Join(to, name), &s)); s.Mtim.Sec != sec || s.Mtim.Nsec != 0 {
			t.Errorf("%s is of %d.%09d, want %d", name, s.Mtim.Sec, s.Mtim.Nsec, sec)
		}
	}
}

// Where a file can have much attached, a layer has as much of it as a header of a tar
// holds, beside the longest path and a map of holes.
func TestMoreIsAttachedThanATarHolds(t *testing.T) {
	from, to := memory(t), memory(t)
	files(t, from, "file", "")
	at := filepath.Join(from, "file")
	for i := range 20 {
		if err := unix.Setxattr(at, fmt.Sprint("user.", i), bytes.Repeat([]byte{byte(i)}, 60_000), 0); err != nil {
			t.Skip("this file system keeps less: ", err)
		}
	}
	f, err := os.OpenFile(at, os.O_WRONLY, 0)
	must(t, err)
	for i := range int64(2000) {
		_, err := f.WriteAt([]byte("x"), i*8192)
		must(t, err)
	}
	must(t, errors.Join(f.Truncate(1<<27), f.Close()))
	deep := from
	for range 15 {
		deep = filepath.Join(deep, ".wh."+strings.Repeat("d", 250))
	}
	must(t, os.MkdirAll(deep, 0o755))
	must(t, os.Rename(at, filepath.Join(deep, "file")))

	var packed bytes.Buffer
	must(t, layer.Pack(t.Context(), from, plenty, &packed))
	must(t, layer.Verify(t.Context(), bytes.NewReader(packed.Bytes()), plenty))
	must(t, layer.Unpack(t.Context(), &packed, plenty, to))
	same(t, []string{from}, []string{to})
	rel, err := filepath.Rel(from, deep)
	must(t, err)
	names := make([]byte, 1000)
	n, err := unix.Listxattr(filepath.Join(to, rel, "file"), names)
	if must(t, err); strings.Count(string(names[:n]), "user.") != 4 {
		t.Errorf("attached are %q", names[:n])
	}
}

// A file system may not give a file as many names as another has given it.
func TestAFileWithMoreNamesThanFitIsSeveral(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes many names")
	}
	from, captured, unpacked := memory(t), t.TempDir(), t.TempDir()
	const many = 65_100 // ext4 takes 65,000
	first := filepath.Join(from, "first")
	must(t, os.WriteFile(first, []byte("x"), 0o600))
	for n := range many {
		must(t, os.Link(first, filepath.Join(from, fmt.Sprint(n))))
	}
	var packed bytes.Buffer
	must(t, layer.Pack(t.Context(), from, plenty, &packed))
	must(t, layer.Unpack(t.Context(), &packed, plenty, unpacked))
	pass(t, layer.NewCapture(beneath.At(from), captured, nil, nil, plenty))
	for _, dir := range []string{captured, unpacked} {
		all, _, err := layer.Scan(t.Context(), dir, plenty)
		must(t, err)
		if len(all) != many+2 {
			t.Errorf("there are %d entries", len(all))
		}
		for _, e := range all {
			if e.Kind == layer.File && e.Size != 1 {
				t.Fatalf("%s has %d bytes", e.Path, e.Size)
			}
		}
	}
}

// Verify refuses what Unpack refuses, and takes what it takes.
func TestVerifyIsUnpackWithoutFiles(t *testing.T) {
	asRoot(t)
	archives := layertest.Malformed("/etc")
	for name, a := range layertest.Hostile("/etc") {
		archives[name] = a.Bytes()
	}
	maps.Copy(archives, layertest.Unusual())
	for name, raw := range archives {
		to := t.TempDir()
		got, want := layer.Verify(t.Context(), bytes.NewReader(raw), few), layer.Unpack(t.Context(), bytes.NewReader(raw), few, to)
		var kernel unix.Errno // which Verify does not ask
		if (got == nil) != (want == nil) && !errors.As(want, &kernel) {
			t.Errorf("%s: verify = %v, unpack = %v", name, got, want)
		}
	}
}

// What lies below a workspace may be more than one layer may have: it was made of many.
func TestWhatLiesBelowIsNotHeldToTheLimitsOfALayer(t *testing.T) {
	asRoot(t)
	one, two, below, upper := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for n := range 8 {
		files(t, one, fmt.Sprint("a", n), "")
		files(t, two, fmt.Sprint("b", n), "")
	}
	l := layer.Limits{Entries: 10, Bytes: 1 << 20}
	must(t, layer.Merge(t.Context(), []string{one, two}, layer.Unlimited, below))
	if err := layer.Merge(t.Context(), []string{one, two}, l, t.TempDir()); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("merge = %v, want ErrTooMany", err)
	}
	must(t, layer.Compare(t.Context(), []string{below, upper}, []string{one, two}, l, func(c layer.Change) {
		if c.Path != "." {
			t.Errorf("%q is not the same", c.Path)
		}
	}))
	r := &layer.Recovery{Snapshot: []string{one, two}, Base: []string{below}, Upper: beneath.At(upper), Suffix: "now"}
	_, err := r.Plan(t.Context())
	must(t, err)
	r.Close()
}
