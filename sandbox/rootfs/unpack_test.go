//go:build linux

package rootfs_test

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

const (
	plenty     = 1 << 30
	manyEnough = 10_000
)

func TestLayersAreLaidOverEachOther(t *testing.T) {
	tests := []struct {
		name   string
		layers func(lower, upper *layerTar)
		want   string
	}{
		{"a file is replaced", func(lower, upper *layerTar) {
			lower.file("a", "old").file("b", "b")
			upper.file("a", "new")
		}, "a = new\nb = b"},
		{"directories are merged", func(lower, upper *layerTar) {
			lower.add(dir("d")).file("d/a", "a")
			upper.add(dir("d")).file("d/b", "b")
		}, "d/\nd/a = a\nd/b = b"},
		{"a file takes the place of a directory", func(lower, upper *layerTar) {
			lower.file("d/e/f", "f")
			upper.file("d", "file")
		}, "d = file"},
		{"a directory takes the place of a file", func(lower, upper *layerTar) {
			lower.file("d", "file")
			upper.add(dir("d")).file("d/f", "f")
		}, "d/\nd/f = f"},
		{"a directory takes the place of a link", func(lower, upper *layerTar) {
			lower.file("e/x", "x").add(symlink("d", "e"))
			upper.add(dir("d")).file("d/f", "f")
		}, "d/\nd/f = f\ne/\ne/x = x"},
		{"a link takes the place of a file", func(lower, upper *layerTar) {
			lower.file("a", "a").file("b", "text").file("c", "c")
			upper.add(symlink("a", "/b")).add(link("c", "b"))
		}, "a -> /b\nb = text\nc = text"},
		{"a file is not written through a link", func(lower, upper *layerTar) {
			lower.file("a", "a").add(symlink("s", "a")).add(link("h", "a"))
			upper.file("s", "s").file("h", "h")
		}, "a = a\ns = s\nh = h"},
		{"a whiteout hides a file", func(lower, upper *layerTar) {
			lower.file("d/a", "a").file("d/b", "b")
			upper.add(gone("d/a"))
		}, "d/\nd/b = b"},
		{"a whiteout hides a directory with all in it", func(lower, upper *layerTar) {
			lower.file("d/e/a", "a").file("b", "b")
			upper.add(gone("d"))
		}, "b = b"},
		{"a whiteout hides a link and not what it leads to", func(lower, upper *layerTar) {
			lower.file("d/a", "a").add(symlink("s", "d"))
			upper.add(gone("s"))
		}, "d/\nd/a = a"},
		{"a whiteout of nothing is nothing", func(lower, upper *layerTar) {
			lower.file("a", "a")
			upper.add(gone("b")).add(gone("no/such/c")).add(gone("a/b"))
		}, "a = a"},
		{"a whiteout hides nothing of its own layer", func(lower, upper *layerTar) {
			lower.file("d/a", "old").file("d/b", "b").file("f", "old")
			upper.file("d/a", "new").add(gone("d")).file("f", "new").add(gone("f"))
		}, "d/\nd/a = new\nf = new"},
		{"a directory that was hidden begins anew", func(lower, upper *layerTar) {
			lower.file("d/a", "a")
			upper.add(gone("d")).file("d/b", "b")
		}, "d/\nd/b = b"},
		{"an opaque directory hides all below it", func(lower, upper *layerTar) {
			lower.file("d/a", "a").file("d/e/b", "b").file("c", "c")
			upper.add(dir("d")).add(gone("d/.wh..opq")).file("d/x", "x")
		}, "c = c\nd/\nd/x = x"},
		{"an opaque directory hides nothing of its own layer", func(lower, upper *layerTar) {
			lower.file("d/a", "a").file("d/e/b", "b").file("d/e/k", "old")
			upper.file("d/e/k", "new").file("d/x", "x").add(gone("d/.wh..opq"))
		}, "d/\nd/e/\nd/e/k = new\nd/x = x"},
		{"an opaque root hides everything", func(lower, upper *layerTar) {
			lower.file("d/a", "a").file("b", "b")
			upper.file("x", "x").add(gone(".wh..opq"))
		}, "x = x"},
		{"an opaque directory that a link leads to", func(lower, upper *layerTar) {
			lower.file("d/a", "a").add(symlink("s", "/d"))
			upper.file("d/b", "b").add(gone("s/.wh..opq"))
		}, "d/\nd/b = b\ns -> /d"},
		{"other files of AUFS are not there", func(lower, upper *layerTar) {
			lower.file(".wh..wh.plnk/1", "x").file("a", "a")
			upper.file(".wh..wh.aufs", "x")
		}, ".wh..wh.plnk/\n.wh..wh.plnk/1 = x\na = a"},
		{"names through links inside", func(lower, upper *layerTar) {
			lower.add(dir("usr/bin")).add(symlink("bin", "usr/bin")).add(dir("run")).add(symlink("var/run", "/run"))
			upper.file("bin/sh", "sh").file("var/run/pid", "1")
		}, "bin -> usr/bin\nrun/\nrun/pid = 1\nusr/\nusr/bin/\nusr/bin/sh = sh\nvar/\nvar/run -> /run"},
		{"absolute and dotted names", func(lower, upper *layerTar) {
			lower.file("/etc/a", "a").file("./etc/b", "b").file("etc/x/../c", "c")
			upper.file("//etc/d", "d").add(link("etc/e", "/etc/a"))
		}, "etc/\netc/a = a\netc/b = b\netc/c = c\netc/d = d\netc/e = a"},
		{"devices and pipes are left out", func(lower, upper *layerTar) {
			lower.add(tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3})
			upper.add(tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}).add(tar.Header{Typeflag: tar.TypeBlock, Name: "disk"}).file("a", "a")
		}, "a = a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lower, upper := newLayer(t), newLayer(t)
			test.layers(lower, upper)
			root := filepath.Join(t.TempDir(), "root")
			if err := rootfs.Unpack(root, plenty, manyEnough, lower.bytes(), upper.bytes()); err != nil {
				t.Fatal(err)
			}
			wantTree(t, root, test.want)
		})
	}
}

func TestNothingOutsideIsTouched(t *testing.T) {
	tests := []struct {
		name string
		fill func(l *layerTar)
		err  string // empty if the layer is harmless once it is held inside
		want string
	}{
		{"a name that leaves", func(l *layerTar) { l.file("../victim", "x") }, "leaves the image", ""},
		{"a name that leaves late", func(l *layerTar) { l.file("a/../../victim", "x") }, "leaves the image", ""},
		{"an absolute name that leaves", func(l *layerTar) { l.file("/../victim", "x") }, "leaves the image", ""},
		{"a whiteout that leaves", func(l *layerTar) { l.add(gone("../victim")) }, "leaves the image", ""},
		{"a whiteout of the directory above", func(l *layerTar) { l.add(tar.Header{Name: ".wh..."}) }, "hides nothing", ""},
		{"a whiteout of a directory itself", func(l *layerTar) { l.add(dir("d")).add(tar.Header{Name: "d/.wh.."}) }, "hides nothing", ""},
		{"a whiteout without a name", func(l *layerTar) { l.add(tar.Header{Name: ".wh."}) }, "hides nothing", ""},
		{"a link that leaves, and a file through it", func(l *layerTar) {
			l.add(dir("d")).add(symlink("d/up", "../..")).file("d/up/victim", "x")
		}, "", "d/\nd/up -> ../..\nvictim = x"},
		{"a whiteout through a link", func(l *layerTar) {
			l.add(symlink("up", "../..")).add(gone("up/victim")).add(gone("up/.wh..opq"))
		}, "", "up -> ../.."},
		{"an absolute link, and a file through it", func(l *layerTar) {
			l.add(dir("etc")).add(symlink("e", "/etc")).file("e/dormouse-victim", "x")
		}, "", "e -> /etc\netc/\netc/dormouse-victim = x"},
		{"an absolute link to nowhere inside", func(l *layerTar) {
			l.add(symlink("e", "/etc")).file("e/dormouse-victim", "x")
		}, "file exists", ""},
		{"a link to itself", func(l *layerTar) { l.add(symlink("e", "e")).file("e/x", "x") }, "too many levels", ""},
		{"a link through /proc", func(l *layerTar) {
			l.add(symlink("e", "/proc/self/cwd")).file("e/x", "x")
		}, "file exists", ""},
		{"a hard link to the outside", func(l *layerTar) { l.add(link("h", "../victim")) }, "leaves the image", ""},
		{"a hard link through a link", func(l *layerTar) {
			l.add(symlink("up", "../..")).add(link("h", "up/victim"))
		}, "no such file", ""},
		{"a hard link to a directory", func(l *layerTar) { l.add(dir("d")).add(link("h", "d")) }, "not permitted", ""},
		{"a hard link to itself", func(l *layerTar) { l.file("a", "a").add(link("a", "./a")) }, "link to itself", ""},
		{"a hard link to a link that leaves, and a file over it", func(l *layerTar) {
			l.add(symlink("s", "../victim")).add(link("h", "s")).file("h", "x")
		}, "", "h = x\ns -> ../victim"},
		{"a root that is a file", func(l *layerTar) { l.file(".", "x") }, "root must be a directory", ""},
		{"a root that is a link", func(l *layerTar) { l.add(symlink(".", "/")) }, "root must be a directory", ""},
		{"an unknown kind", func(l *layerTar) { l.add(tar.Header{Typeflag: 'Z', Name: "z"}) }, "unknown kind", ""},
		{"an owner that is none", func(l *layerTar) { l.add(tar.Header{Typeflag: tar.TypeDir, Name: "d/", Uid: -1}) }, "no owner", ""},
		{"a tower of directories", func(l *layerTar) { l.file(strings.Repeat("d/", 300)+"f", "x") }, "too deep", ""},
		{"a tower built through links", func(l *layerTar) {
			l.add(dir(strings.Repeat("d/", 200))).add(symlink("s", strings.Repeat("d/", 200))).file("s/"+strings.Repeat("e/", 100)+"f", "x")
		}, "too deep", ""},
		{"a name that is too long", func(l *layerTar) { l.file(strings.Repeat("long/", 1000)+"f", "") }, "too long", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			outside := t.TempDir()
			victim := filepath.Join(outside, "victim")
			if err := os.WriteFile(victim, []byte("whole"), 0o600); err != nil {
				t.Fatal(err)
			}
			l := newLayer(t)
			test.fill(l)
			root := filepath.Join(outside, "root")
			err := rootfs.Unpack(root, plenty, manyEnough, l.bytes())
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error = %v, want one with %q", err, test.err)
			case test.want != "":
				wantTree(t, root, test.want)
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

func TestLimitsHoldWhateverATarSays(t *testing.T) {
	const maxBytes, maxEntries = 1 << 20, 100
	entries := newLayer(t)
	for i := range maxEntries + 1 {
		entries.file(strings.Repeat("x", i+1), "")
	}
	tests := []struct {
		name string
		raw  []byte
		err  string
	}{
		{"entries", entries.bytes(), "too many entries"},
		{"directories that nobody listed", newLayer(t).file(strings.Repeat("d/", maxEntries+1)+"f", "").bytes(), "too many entries"},
		{"bytes", newLayer(t).file("big", strings.Repeat("x", maxBytes+1)).bytes(), "too large"},
		{"the holes of a sparse file", sparse(t, 1<<40), "too large"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			err := rootfs.Unpack(root, maxBytes, maxEntries, test.raw)
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error = %v, want one with %q", err, test.err)
			}
			if n := len(list(t, root)); n > maxEntries {
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

func TestFilesKeepOwnersModesAndTimes(t *testing.T) {
	l := newLayer(t)
	l.add(tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o711, Uid: 3, Gid: 4})
	l.add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})
	l.put(tar.Header{
		Typeflag: tar.TypeReg, Name: "su", Mode: 0o4755, Uid: 1000, Gid: 1001, Size: 1,
		PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01", "SCHILY.xattr.trusted.overlay.opaque": "y"},
	}, "x")
	l.add(tar.Header{Typeflag: tar.TypeSymlink, Name: "s", Linkname: "su", Uid: 7, Gid: 8})
	l.file("tmp/late", "x")
	l.file("implied/x", "x")
	l.put(tar.Header{Typeflag: tar.TypeReg, Name: "ancient", Mode: 0, ModTime: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)}, "")
	defer syscall.Umask(syscall.Umask(0o077))
	root := filepath.Join(t.TempDir(), "root")
	if err := rootfs.Unpack(root, plenty, manyEnough, l.bytes()); err != nil {
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
		if want.timed && !info.ModTime().Equal(when) {
			t.Errorf("%s is from %v, want %v", want.name, info.ModTime(), when)
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
