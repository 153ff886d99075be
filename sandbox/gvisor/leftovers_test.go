//go:build linux

package gvisor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// put makes a file below the directory of the driver, of that age, and its directories, as
// far as they are new, of the same.
func (h *fixture) put(name string, age time.Duration) (path string) {
	h.t.Helper()
	path = filepath.Join(h.dir, name)
	var made []string
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		made = append(made, dir)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
	when := time.Now().Add(-age)
	for _, name := range append([]string{path}, made...) {
		if err := os.Chtimes(name, when, when); err != nil {
			h.t.Fatal(err)
		}
	}
	return path
}

// What servers that were killed have left unfinished goes, and nothing that a live one may
// be writing.
func TestSweepRemovesWhatKilledServersLeft(t *testing.T) {
	h := newFixture(t)
	s := h.create(fence(1, 1))
	h.sh(s, "echo kept >file")
	h.stop(s)
	own := filepath.Join("sessions", string(session))
	var old, young []string
	for _, name := range []string{
		own + "/.tmp-1", own + "/marks/7/.tmp-1", own + "/volume.img.new", own + "/volume.img.fresh.new", own + "/image.new/pages.img",
		"packages/key/.tmp-1", "template-1/volume.img", "root/.new-1/etc", ".probe-1", ".tmp-1",
	} {
		old = append(old, h.put(name, time.Hour+time.Minute))
	}
	for _, name := range []string{own + "/.tmp-2", "packages/key/.tmp-2", "template-2/volume.img", "root/.new-2/etc", ".probe-2", ".tmp-2", own + "/image"} {
		young = append(young, h.put(name, 0))
	}
	h.sweep()
	for _, path := range old {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range young {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("what may be written to: %v", err)
		}
	}
	if err := os.Remove(filepath.Join(h.dir, own, "image")); err != nil {
		t.Fatal(err)
	}
	if got := h.sh(h.create(fence(2, 2)), "cat file"); got != "kept" {
		t.Errorf("afterwards: %q", got)
	}
}
