//go:build linux

package powercut_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
)

func TestNameIsLostUnlessItsDirectoryIsSynced(t *testing.T) {
	for _, c := range []struct {
		name       string
		sync, keep bool
		want       map[string]string
	}{
		{"lost", false, false, map[string]string{"new": "old", "tmp": "new", "fresh.tmp": "fresh"}},
		{"kept by chance", false, true, map[string]string{"new": "new", "fresh": "fresh"}},
		{"synced", true, false, map[string]string{"new": "new", "fresh": "fresh"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, shown, under := disk(t)
			durable := func(name, content string) {
				h, err := os.Create(filepath.Join(shown, name))
				must(t, err)
				_, err = h.WriteString(content)
				must(t, errors.Join(err, h.Sync(), h.Close()))
			}
			durable("new", "old")
			durable("tmp", "new")
			durable("fresh.tmp", "fresh")
			must(t, os.Rename(filepath.Join(shown, "tmp"), filepath.Join(shown, "new")))
			must(t, os.Rename(filepath.Join(shown, "fresh.tmp"), filepath.Join(shown, "fresh")))
			if c.sync {
				must(t, syncDir(shown))
			}
			must(t, d.Cut(func(u powercut.Unsynced) int {
				if c.keep && u.Page == powercut.Name {
					return 1
				}
				return 0
			}))
			got := make(map[string]string)
			entries, err := os.ReadDir(under)
			must(t, err)
			for _, e := range entries {
				got[e.Name()] = read(t, filepath.Join(under, e.Name()))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDiskFailsAsItIsTold(t *testing.T) {
	d, shown, _ := disk(t)
	path := filepath.Join(shown, "f")
	must(t, os.WriteFile(path, []byte("sound"), 0o600))
	h, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer h.Close()
	do := map[powercut.Op]func() error{
		powercut.Read:     func() error { _, err := os.ReadFile(path); return err },
		powercut.Write:    func() error { _, err := h.WriteAt([]byte("x"), 0); return err },
		powercut.Truncate: func() error { return h.Truncate(1) },
		powercut.Sync:     h.Sync,
		powercut.SyncDir:  func() error { return syncDir(shown) },
		powercut.Make:     func() error { return os.Mkdir(filepath.Join(shown, "d"), 0o700) },
		powercut.Rename:   func() error { return os.Rename(path, path+"2") },
		powercut.Remove:   func() error { return os.Remove(path) },
	}
	for op, f := range do {
		d.Inject(func(r powercut.Request) error {
			if r.Op == op {
				return syscall.EDQUOT
			}
			return nil
		})
		if err := f(); !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("%s = %v, want what was injected", op, err)
		}
		for _, other := range []powercut.Op{powercut.Read, powercut.Write} {
			if err := do[other](); other != op && err != nil {
				t.Errorf("%s while %s fails = %v", other, op, err)
			}
		}
	}
	d.Inject(func(r powercut.Request) error {
		if r.Op == powercut.Write {
			return powercut.Short((len(r.Data) + 1) / 2)
		}
		return nil
	})
	if n, err := syscall.Pwrite(int(h.Fd()), []byte("12345678"), 0); n != 4 || err != nil {
		t.Errorf("a short write took %d bytes, %v", n, err)
	}
	must(t, os.WriteFile(path, []byte("whole in the end"), 0o600))
	d.Inject(nil)
	if got := read(t, path); !strings.HasPrefix(got, "whole in the end") {
		t.Errorf("the file holds %q", got)
	}
	for _, op := range []powercut.Op{powercut.Rename, powercut.Make} {
		must(t, do[op]())
	}
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
