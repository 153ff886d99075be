//go:build linux

package layer_test

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// FuzzRootFS applies two hostile layers.
func FuzzRootFS(f *testing.F) {
	f.Add(layertest.NewTar(f).File("d/a", "a").Add(layertest.Symlink("s", "../..")).Bytes(), layertest.NewTar(f).Add(layertest.Whiteout("s/victim")).Add(layertest.Whiteout("d/.wh..opq")).Bytes())
	f.Add(layertest.NewTar(f).Add(layertest.Dir("d")).Add(layertest.Symlink("d/up", "/")).File("d/up/x", "x").Bytes(), layertest.NewTar(f).Add(layertest.Hardlink("h", "d/up/x")).Bytes())
	f.Add(layertest.NewTar(f).File("a", "a").Add(tar.Header{Name: ".wh..."}).Bytes(), layertest.NewTar(f).File("../victim", "x").Bytes())
	f.Add(layertest.NewTar(f).Add(tar.Header{Typeflag: tar.TypeFifo, Name: "p"}).Add(tar.Header{Typeflag: tar.TypeChar, Name: "c"}).Bytes(), []byte("no tar"))
	f.Fuzz(applySafely)
}

// FuzzRootFSEntries applies layers that are well-formed, and of nothing but
// traps.
func FuzzRootFSEntries(f *testing.F) {
	f.Add([]byte{0, 0x10, 0, 2, 0x01, 0x33, 1, 0x12, 0}, []byte{1, 0x50, 0, 3, 0x21, 0x10})
	f.Add([]byte{2, 0x00, 0x33, 1, 0x80, 0, 1, 0x60, 0}, []byte{4, 0x01, 0, 1, 0x70, 0})
	f.Fuzz(func(t *testing.T, lower, upper []byte) { applySafely(t, trapsOf(t, lower), trapsOf(t, upper)) })
}

// trapsOf makes a layer out of three bytes for each entry: its kind, its name and
// where it leads.
func trapsOf(t *testing.T, script []byte) []byte {
	l := layertest.NewTar(t)
	parts := []string{"a", "b", "c", "..", ".", ".wh.a", ".wh..wh..opq", ".wh...", "victim", "/.", "a/b", "../..", "/proc/self/cwd", ".wh.b", "root", "/a"}
	name := func(b byte) string { return parts[b>>4] + "/" + parts[b&15] }
	for ; len(script) >= 3 && l.Len() < 1<<16; script = script[3:] {
		at, to := name(script[1]), name(script[2])
		switch script[0] % 6 {
		case 0:
			l.Add(layertest.Dir(at))
		case 1:
			l.File(at, "text")
		case 2:
			l.Add(layertest.Symlink(parts[script[1]>>4], to))
		case 3:
			l.Add(layertest.Hardlink(at, to))
		case 4:
			l.Add(layertest.Symlink(at, parts[script[2]&15]))
		case 5:
			l.File(parts[script[1]&15], "text")
		}
	}
	return l.Bytes()
}

// applySafely applies two layers: nothing outside may change,
// nothing but files, directories and links may come of it, and it can be removed.
func applySafely(t *testing.T, lower, upper []byte) {
	const maxBytes, maxEntries = 1 << 16, 100
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(outside, "root")
	_ = apply(root, layer.Limits{Entries: maxEntries, Bytes: maxBytes}, lower, upper)
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
