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

// FuzzUnpack lays two hostile layers over each other: nothing outside may change,
// nothing but files, directories and links may come of it, and it can be removed.
func FuzzUnpack(f *testing.F) {
	f.Add(newLayer(f).file("d/a", "a").add(symlink("s", "../..")).bytes(), newLayer(f).add(gone("s/victim")).add(gone("d/.wh..opq")).bytes())
	f.Add(newLayer(f).add(dir("d")).add(symlink("d/up", "/")).file("d/up/x", "x").bytes(), newLayer(f).add(link("h", "d/up/x")).bytes())
	f.Add(newLayer(f).file("a", "a").add(tar.Header{Name: ".wh..."}).bytes(), newLayer(f).file("../victim", "x").bytes())
	f.Add(newLayer(f).add(tar.Header{Typeflag: tar.TypeFifo, Name: "p"}).add(tar.Header{Typeflag: tar.TypeChar, Name: "c"}).bytes(), []byte("no tar"))
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
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
		entries, size := 0, int64(0)
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			switch e.Type() {
			case 0:
				size += info.Size()
			case fs.ModeDir, fs.ModeSymlink:
			default:
				t.Errorf("%s is %v", path, e.Type())
			}
			entries++
			return nil
		})
		if err != nil || entries > maxEntries+1 || size > maxBytes*maxEntries {
			t.Errorf("%d entries of %d bytes, %v", entries, size, err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Errorf("what was unpacked cannot be removed: %v", err)
		}
	})
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
