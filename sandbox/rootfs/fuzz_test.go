//go:build linux

package rootfs_test

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

// FuzzUnpack lays two hostile layers over each other.
func FuzzUnpack(f *testing.F) {
	f.Add(newLayer(f).file("d/a", "a").add(symlink("s", "../..")).bytes(), newLayer(f).add(gone("s/victim")).add(gone("d/.wh..opq")).bytes())
	f.Add(newLayer(f).add(dir("d")).add(symlink("d/up", "/")).file("d/up/x", "x").bytes(), newLayer(f).add(link("h", "d/up/x")).bytes())
	f.Add(newLayer(f).file("a", "a").add(tar.Header{Name: ".wh..."}).bytes(), newLayer(f).file("../victim", "x").bytes())
	f.Add(newLayer(f).add(tar.Header{Typeflag: tar.TypeFifo, Name: "p"}).add(tar.Header{Typeflag: tar.TypeChar, Name: "c"}).bytes(), []byte("no tar"))
	f.Fuzz(unpackSafely)
}

// FuzzEntries lays layers over each other that are well-formed, and of nothing but
// traps.
func FuzzEntries(f *testing.F) {
	f.Add([]byte{0, 0x10, 0, 2, 0x01, 0x33, 1, 0x12, 0}, []byte{1, 0x50, 0, 3, 0x21, 0x10})
	f.Add([]byte{2, 0x00, 0x33, 1, 0x80, 0, 1, 0x60, 0}, []byte{4, 0x01, 0, 1, 0x70, 0})
	f.Fuzz(func(t *testing.T, lower, upper []byte) { unpackSafely(t, trapsOf(t, lower), trapsOf(t, upper)) })
}

// trapsOf makes a layer out of three bytes for each entry: its kind, its name and
// where it leads.
func trapsOf(t *testing.T, script []byte) []byte {
	l := newLayer(t)
	parts := []string{"a", "b", "c", "..", ".", ".wh.a", ".wh..wh..opq", ".wh...", "victim", "/.", "a/b", "../..", "/proc/self/cwd", ".wh.b", "root", "/a"}
	name := func(b byte) string { return parts[b>>4] + "/" + parts[b&15] }
	for ; len(script) >= 3 && l.buf.Len() < 1<<16; script = script[3:] {
		at, to := name(script[1]), name(script[2])
		switch script[0] % 6 {
		case 0:
			l.add(dir(at))
		case 1:
			l.file(at, "text")
		case 2:
			l.add(symlink(parts[script[1]>>4], to))
		case 3:
			l.add(link(at, to))
		case 4:
			l.add(symlink(at, parts[script[2]&15]))
		case 5:
			l.file(parts[script[1]&15], "text")
		}
	}
	return l.bytes()
}

// unpackSafely lays two layers over each other: nothing outside may change,
// nothing but files, directories and links may come of it, and it can be removed.
func unpackSafely(t *testing.T, lower, upper []byte) {
	const maxBytes, maxEntries = 1 << 16, 100
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(outside, "root")
	_ = rootfs.Unpack(root, maxBytes, maxEntries, lower, upper)
	if got, err := os.ReadFile(filepath.Join(outside, "victim")); err != nil || string(got) != "whole" {
		t.Errorf("what lies outside = %q, %v", got, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 2 {
		t.Errorf("beside the tree = %v, %v", names, err)
	}
	entries := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !e.Type().IsRegular() && e.Type() != fs.ModeSymlink {
			t.Errorf("%s is %v", path, e.Type())
		}
		entries++
		return err
	})
	if err != nil || entries > maxEntries+1 {
		t.Errorf("%d entries, %v", entries, err)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Errorf("what was unpacked cannot be removed: %v", err)
	}
}

// FuzzTarball reads an image out of a hostile tar.
func FuzzTarball(f *testing.F) {
	im := twoLayers(f)
	f.Add(must(os.ReadFile(saveTarball(f, im))))
	f.Add(newLayer(f).file("manifest.json", `[{"Config": "c", "Layers": ["l"]}]`).file("c", `{}`).add(symlink("l", "l")).bytes())
	f.Add(newLayer(f).file("index.json", `{"manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json", "digest": "sha256:00"}]}`).bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = rootfs.ReadTarball(path)
	})
}

// FuzzRef reads references that clients give. One in full leads to itself, and to
// no file.
func FuzzRef(f *testing.F) {
	for _, ref := range []string{"image", "registry.example/name:tag", "127.0.0.1:5000/a/b@sha256:" + strings.Repeat("0", 64), "dir:/", "a:b@c", "//"} {
		f.Add(ref)
	}
	f.Fuzz(func(t *testing.T, text string) {
		full, err := rootfs.ParseRef(text)
		if err != nil {
			return
		}
		if again, err := rootfs.ParseRef(full); err != nil || again != full {
			t.Errorf("%q leads to %q, which leads to %q, %v", text, full, again, err)
		}
		if rootfs.Local(full) {
			t.Errorf("%q leads to %q, a file", text, full)
		}
	})
}
