//go:build linux

package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// roomy is what an image may take.
var roomy = layer.Limits{Entries: 10_000, Bytes: 1 << 30}

// apply applies layers to a new root file system.
func apply(dir string, l layer.Limits, layers ...[]byte) error {
	r, err := layer.NewRootFS(dir, l)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for _, raw := range layers {
		if err := r.Apply(context.Background(), bytes.NewReader(raw)); err != nil {
			return err
		}
	}
	return nil
}

func TestLayersAreApplied(t *testing.T) {
	tests := []struct {
		name   string
		layers func(lower, upper *layertest.Tar)
		want   string
	}{
		{"a file is replaced", func(lower, upper *layertest.Tar) {
			lower.File("a", "old").File("b", "b")
			upper.File("a", "new")
		}, "a = new\nb = b"},
		{"directories are merged", func(lower, upper *layertest.Tar) {
			lower.Add(layertest.Dir("d")).File("d/a", "a")
			upper.Add(layertest.Dir("d")).File("d/b", "b")
		}, "d/\nd/a = a\nd/b = b"},
		{"a file takes the place of a directory", func(lower, upper *layertest.Tar) {
			lower.File("d/e/f", "f")
			upper.File("d", "file")
		}, "d = file"},
		{"a directory takes the place of a file", func(lower, upper *layertest.Tar) {
			lower.File("d", "file")
			upper.Add(layertest.Dir("d")).File("d/f", "f")
		}, "d/\nd/f = f"},
		{"a directory takes the place of a link", func(lower, upper *layertest.Tar) {
			lower.File("e/x", "x").Add(layertest.Symlink("d", "e"))
			upper.Add(layertest.Dir("d")).File("d/f", "f")
		}, "d/\nd/f = f\ne/\ne/x = x"},
		{"a link takes the place of a file", func(lower, upper *layertest.Tar) {
			lower.File("a", "a").File("b", "text").File("c", "c")
			upper.Add(layertest.Symlink("a", "/b")).Add(layertest.Hardlink("c", "b"))
		}, "a -> /b\nb = text\nc = text"},
		{"a file is not written through a link", func(lower, upper *layertest.Tar) {
			lower.File("a", "a").Add(layertest.Symlink("s", "a")).Add(layertest.Hardlink("h", "a"))
			upper.File("s", "s").File("h", "h")
		}, "a = a\ns = s\nh = h"},
		{"a whiteout hides a file", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "a").File("d/b", "b")
			upper.Add(layertest.Whiteout("d/a"))
		}, "d/\nd/b = b"},
		{"a whiteout hides a directory with all in it", func(lower, upper *layertest.Tar) {
			lower.File("d/e/a", "a").File("b", "b")
			upper.Add(layertest.Whiteout("d"))
		}, "b = b"},
		{"a whiteout hides a link and not what it leads to", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "a").Add(layertest.Symlink("s", "d"))
			upper.Add(layertest.Whiteout("s"))
		}, "d/\nd/a = a"},
		{"a whiteout of nothing is nothing", func(lower, upper *layertest.Tar) {
			lower.File("a", "a")
			upper.Add(layertest.Whiteout("b")).Add(layertest.Whiteout("no/such/c")).Add(layertest.Whiteout("a/b"))
		}, "a = a"},
		{"a whiteout hides nothing of its own layer", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "old").File("d/b", "b").File("f", "old")
			upper.File("d/a", "new").Add(layertest.Whiteout("d")).File("f", "new").Add(layertest.Whiteout("f"))
		}, "d/\nd/a = new\nf = new"},
		{"a directory that was hidden begins anew", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "a")
			upper.Add(layertest.Whiteout("d")).File("d/b", "b")
		}, "d/\nd/b = b"},
		{"an opaque directory hides all below it", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "a").File("d/e/b", "b").File("c", "c")
			upper.Add(layertest.Dir("d")).Add(layertest.Whiteout("d/.wh..opq")).File("d/x", "x")
		}, "c = c\nd/\nd/x = x"},
		{"an opaque directory hides nothing of its own layer", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "a").File("d/e/b", "b").File("d/e/k", "old")
			upper.File("d/e/k", "new").File("d/x", "x").Add(layertest.Whiteout("d/.wh..opq"))
		}, "d/\nd/e/\nd/e/k = new\nd/x = x"},
		{"an opaque root hides everything", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "a").File("b", "b")
			upper.File("x", "x").Add(layertest.Whiteout(".wh..opq"))
		}, "x = x"},
		{"an opaque directory that a link leads to", func(lower, upper *layertest.Tar) {
			lower.File("d/a", "a").Add(layertest.Symlink("s", "/d"))
			upper.File("d/b", "b").Add(layertest.Whiteout("s/.wh..opq"))
		}, "d/\nd/b = b\ns -> /d"},
		{"other files of AUFS are not there", func(lower, upper *layertest.Tar) {
			lower.File(".wh..wh.plnk/1", "x").File("a", "a")
			upper.File(".wh..wh.aufs", "x")
		}, ".wh..wh.plnk/\n.wh..wh.plnk/1 = x\na = a"},
		{"names through links inside", func(lower, upper *layertest.Tar) {
			lower.Add(layertest.Dir("usr/bin")).Add(layertest.Symlink("bin", "usr/bin")).Add(layertest.Dir("run")).Add(layertest.Symlink("var/run", "/run"))
			upper.File("bin/sh", "sh").File("var/run/pid", "1")
		}, "bin -> usr/bin\nrun/\nrun/pid = 1\nusr/\nusr/bin/\nusr/bin/sh = sh\nvar/\nvar/run -> /run"},
		{"absolute and dotted names", func(lower, upper *layertest.Tar) {
			lower.File("/etc/a", "a").File("./etc/b", "b").File("etc/x/../c", "c")
			upper.File("//etc/d", "d").Add(layertest.Hardlink("etc/e", "/etc/a"))
		}, "etc/\netc/a = a\netc/b = b\netc/c = c\netc/d = d\netc/e = a"},
		{"devices and pipes are left out", func(lower, upper *layertest.Tar) {
			lower.Add(tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3})
			upper.Add(tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}).Add(tar.Header{Typeflag: tar.TypeBlock, Name: "disk"}).File("a", "a")
		}, "a = a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lower, upper := layertest.NewTar(t), layertest.NewTar(t)
			test.layers(lower, upper)
			root := filepath.Join(t.TempDir(), "root")
			if err := apply(root, roomy, lower.Bytes(), upper.Bytes()); err != nil {
				t.Fatal(err)
			}
			layertest.WantTree(t, root, test.want)
		})
	}
}

// escapes are layers that would leave the directory that they are unpacked in.
var escapes = []struct {
	name string
	fill func(l *layertest.Tar)
	err  string // empty if the layer is harmless once it is held inside
	want string
}{
	{"a name that leaves", func(l *layertest.Tar) { l.File("../victim", "x") }, "leaves the image", ""},
	{"a name that leaves late", func(l *layertest.Tar) { l.File("a/../../victim", "x") }, "leaves the image", ""},
	{"an absolute name that leaves", func(l *layertest.Tar) { l.File("/../victim", "x") }, "leaves the image", ""},
	{"a whiteout that leaves", func(l *layertest.Tar) { l.Add(layertest.Whiteout("../victim")) }, "leaves the image", ""},
	{"a whiteout of the directory above", func(l *layertest.Tar) { l.Add(tar.Header{Name: ".wh..."}) }, "hides nothing", ""},
	{"a whiteout of a directory itself", func(l *layertest.Tar) { l.Add(layertest.Dir("d")).Add(tar.Header{Name: "d/.wh.."}) }, "hides nothing", ""},
	{"a whiteout without a name", func(l *layertest.Tar) { l.Add(tar.Header{Name: ".wh."}) }, "hides nothing", ""},
	{"a link that leaves, and a file through it", func(l *layertest.Tar) {
		l.Add(layertest.Dir("d")).Add(layertest.Symlink("d/up", "../..")).File("d/up/victim", "x")
	}, "", "d/\nd/up -> ../..\nvictim = x"},
	{"a whiteout through a link", func(l *layertest.Tar) {
		l.Add(layertest.Symlink("up", "../..")).Add(layertest.Whiteout("up/victim")).Add(layertest.Whiteout("up/.wh..opq"))
	}, "", "up -> ../.."},
	{"an absolute link, and a file through it", func(l *layertest.Tar) {
		l.Add(layertest.Dir("etc")).Add(layertest.Symlink("e", "/etc")).File("e/dormouse-victim", "x")
	}, "", "e -> /etc\netc/\netc/dormouse-victim = x"},
	{"an absolute link to nowhere inside", func(l *layertest.Tar) {
		l.Add(layertest.Symlink("e", "/etc")).File("e/dormouse-victim", "x")
	}, "file exists", ""},
	{"a link to itself", func(l *layertest.Tar) { l.Add(layertest.Symlink("e", "e")).File("e/x", "x") }, "too many levels", ""},
	{"a link through /proc", func(l *layertest.Tar) {
		l.Add(layertest.Symlink("e", "/proc/self/cwd")).File("e/x", "x")
	}, "file exists", ""},
	{"a hard link to the outside", func(l *layertest.Tar) { l.Add(layertest.Hardlink("h", "../victim")) }, "leaves the image", ""},
	{"a hard link through a link", func(l *layertest.Tar) {
		l.Add(layertest.Symlink("up", "../..")).Add(layertest.Hardlink("h", "up/victim"))
	}, "no such file", ""},
	{"a hard link to a directory", func(l *layertest.Tar) { l.Add(layertest.Dir("d")).Add(layertest.Hardlink("h", "d")) }, "not permitted", ""},
	{"a hard link to itself", func(l *layertest.Tar) { l.File("a", "a").Add(layertest.Hardlink("a", "./a")) }, "link to itself", ""},
	{"a hard link to a link that leaves, and a file over it", func(l *layertest.Tar) {
		l.Add(layertest.Symlink("s", "../victim")).Add(layertest.Hardlink("h", "s")).File("h", "x")
	}, "", "h = x\ns -> ../victim"},
	{"a root that is a file", func(l *layertest.Tar) { l.File(".", "x") }, "root must be a directory", ""},
	{"a root that is a link", func(l *layertest.Tar) { l.Add(layertest.Symlink(".", "/")) }, "root must be a directory", ""},
	{"an unknown kind", func(l *layertest.Tar) { l.Add(tar.Header{Typeflag: 'Z', Name: "z"}) }, "unknown kind", ""},
	{"an owner that is none", func(l *layertest.Tar) { l.Add(tar.Header{Typeflag: tar.TypeDir, Name: "d/", Uid: -1}) }, "no owner", ""},
	{"a tower of directories", func(l *layertest.Tar) { l.File(strings.Repeat("d/", 300)+"f", "x") }, "too deep", ""},
	{"a tower built through links", func(l *layertest.Tar) {
		l.Add(layertest.Dir(strings.Repeat("d/", 200))).Add(layertest.Symlink("s", strings.Repeat("d/", 200))).File("s/"+strings.Repeat("e/", 100)+"f", "x")
	}, "too deep", ""},
	{"a name that is too long", func(l *layertest.Tar) { l.File(strings.Repeat("long/", 1000)+"f", "") }, "too long", ""},
}

func TestApplyTouchesNothingOutside(t *testing.T) {
	for _, test := range escapes {
		t.Run(test.name, func(t *testing.T) {
			outside := t.TempDir()
			victim := filepath.Join(outside, "victim")
			if err := os.WriteFile(victim, []byte("whole"), 0o600); err != nil {
				t.Fatal(err)
			}
			l := layertest.NewTar(t)
			test.fill(l)
			root := filepath.Join(outside, "root")
			err := apply(root, roomy, l.Bytes())
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error = %v, want one with %q", err, test.err)
			case test.want != "":
				layertest.WantTree(t, root, test.want)
			}
			if got, err := os.ReadFile(victim); err != nil || string(got) != "whole" {
				t.Errorf("what lies outside = %q, %v", got, err)
			}
			if _, err := os.Lstat("/etc/dormouse-victim"); err == nil {
				t.Error("a file was made in the machine's /etc")
			}
			if names, err := os.ReadDir(outside); err != nil || len(names) != 2 {
				t.Errorf("beside the tree = %v, %v", names, err)
			}
			if err := os.RemoveAll(root); err != nil {
				t.Errorf("what was unpacked cannot be removed: %v", err)
			}
		})
	}
}

func TestRootFSIsLimited(t *testing.T) {
	const maxBytes, maxEntries = 1 << 20, 100
	entries := layertest.NewTar(t)
	for i := range maxEntries + 1 {
		entries.File(strings.Repeat("x", i+1), "")
	}
	tests := []struct {
		name string
		raw  []byte
		err  string
	}{
		{"entries", entries.Bytes(), "too many entries"},
		{"directories that nobody listed", layertest.NewTar(t).File(strings.Repeat("d/", maxEntries+1)+"f", "").Bytes(), "too many entries"},
		{"bytes", layertest.NewTar(t).File("big", strings.Repeat("x", maxBytes+1)).Bytes(), "too large"},
		{"the holes of a sparse file", sparse(t, 1<<40), "too large"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			err := apply(root, layer.Limits{Entries: maxEntries, Bytes: maxBytes}, test.raw)
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error = %v, want one with %q", err, test.err)
			}
			if n := len(layertest.List(t, root)); n > maxEntries {
				t.Errorf("%d names were made", n)
			}
		})
	}
}

// sparse is a tar with a file that is nothing but a hole.
func sparse(t *testing.T, size int64) []byte {
	t.Helper()
	// In the oldest of the formats, the header itself has the map: a file of size
	// bytes, with no data.
	h := make([]byte, 512+1024)
	copy(h, "hole")
	copy(h[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(h[257:], "ustar  \x00")
	octal := func(at int, n int64) {
		for i := range 11 {
			h[at+10-i] = byte('0' + n&7)
			n >>= 3
		}
	}
	const realSize = 483
	h[realSize] = 0x80 // a number too large for octal
	for i := range 8 {
		h[realSize+11-i] = byte(size >> (8 * i))
	}
	octal(386, 0)
	octal(398, 0)
	sum := 0
	for _, b := range h[:512] {
		sum += int(b)
	}
	for i := range 6 {
		h[148+5-i] = byte('0' + sum&7)
		sum >>= 3
	}
	h[154], h[155] = 0, ' '
	return h
}

func TestRootFSKeepsOwnersModesAndTimes(t *testing.T) {
	l := layertest.NewTar(t)
	l.Add(tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o711, Uid: 3, Gid: 4})
	l.Add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})
	l.Put(tar.Header{
		Typeflag: tar.TypeReg, Name: "su", Mode: 0o4755, Uid: 1000, Gid: 1001, Size: 1,
		PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01", "SCHILY.xattr.trusted.overlay.opaque": "y"},
	}, "x")
	l.Add(tar.Header{Typeflag: tar.TypeSymlink, Name: "s", Linkname: "su", Uid: 7, Gid: 8})
	l.File("tmp/late", "x")
	l.File("implied/x", "x")
	l.Put(tar.Header{Typeflag: tar.TypeReg, Name: "ancient", Mode: 0, ModTime: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)}, "")
	defer syscall.Umask(syscall.Umask(0o077))
	root := filepath.Join(t.TempDir(), "root")
	if err := apply(root, roomy, l.Bytes()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		name     string
		mode     fs.FileMode
		uid, gid uint32
		timed    bool
	}{
		{".", fs.ModeDir | 0o711, 3, 4, true},
		{"tmp", fs.ModeDir | fs.ModeSticky | 0o777, 0, 0, true},
		{"su", fs.ModeSetuid | 0o755, 1000, 1001, true},
		{"s", fs.ModeSymlink | 0o777, 7, 8, true},
		{"implied", fs.ModeDir | 0o755, 0, 0, false},
		{"ancient", 0, 0, 0, false},
	} {
		info, err := os.Lstat(filepath.Join(root, want.name))
		if err != nil {
			t.Fatal(err)
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok || info.Mode() != want.mode || s.Uid != want.uid || s.Gid != want.gid {
			t.Errorf("%s is %v of %d:%d, want %v of %d:%d", want.name, info.Mode(), s.Uid, s.Gid, want.mode, want.uid, want.gid)
		}
		if want.timed && !info.ModTime().Equal(layertest.When) {
			t.Errorf("%s is from %v, want %v", want.name, info.ModTime(), layertest.When)
		}
	}
	names := make([]byte, 1024)
	n, err := unix.Listxattr(filepath.Join(root, "su"), names)
	if err != nil && err != unix.ENOTSUP {
		t.Fatal(err)
	}
	if got := strings.Split(string(names[:max(n, 0)]), "\x00"); slices.Contains(got, "security.capability") || slices.Contains(got, "trusted.overlay.opaque") {
		t.Errorf("attributes = %v, want none of the image's", got)
	}
}

// The other ways to unpack refuse them, or hold them inside as well.
func TestEscapesAreHeldUnderEveryPolicy(t *testing.T) {
	asRoot(t)
	for _, test := range escapes {
		t.Run(test.name, func(t *testing.T) {
			l := layertest.NewTar(t)
			test.fill(l)
			if err := unpackSafely(t, l.Bytes()); !isTyped(err) {
				t.Errorf("unpack = %v", err)
			}
			if err := safely(t, l.Bytes(), unpackOCI); err != nil && !isTyped(err) {
				t.Errorf("unpack as an OCI layer = %v", err)
			}
			if _, err := os.Lstat("/etc/dormouse-victim"); err == nil {
				t.Error("a file was made in the machine's /etc")
			}
		})
	}
}

// A root file system takes some of what no layer may hold, and holds it inside.
func TestHostileArchivesStayInARootFS(t *testing.T) {
	asRoot(t)
	all := make(map[string][]byte)
	for name, a := range layertest.Hostile("/etc") {
		all[name] = a.Bytes()
	}
	maps.Copy(all, layertest.Malformed("/etc"))
	maps.Copy(all, layertest.Unusual())
	for name, raw := range all {
		t.Run(name, func(t *testing.T) {
			err := safely(t, raw, func(_ testing.TB, raw []byte, to string) error {
				must(t, os.Remove(to))
				err := apply(to, few, raw)
				must(t, filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
					must(t, err)
					if !e.IsDir() && !e.Type().IsRegular() && e.Type() != fs.ModeSymlink {
						t.Errorf("%s is %v", path, e.Type())
					}
					if n, err := unix.Llistxattr(path, nil); n > 0 || err != nil {
						t.Errorf("%s has attributes: %v", path, err)
					}
					return nil
				}))
				return err
			})
			if err != nil && !isTyped(err) {
				t.Errorf("apply = %v", err)
			}
		})
	}
}
