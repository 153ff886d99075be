//go:build linux

package gvisor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStateIsCopiedAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "new", "to")
	secret := filepath.Join(dir, "secret")
	for _, err := range []error{
		os.WriteFile(secret, []byte("of the machine"), 0o600),
		os.MkdirAll(filepath.Join(from, "sub"), 0o750),
		os.WriteFile(filepath.Join(from, "sub", "file"), []byte("text"), 0o640),
		os.Symlink(secret, filepath.Join(from, "link")),
		unix.Mkfifo(filepath.Join(from, "pipe"), 0o600),
		unix.Mknod(filepath.Join(from, "socket"), unix.S_IFSOCK|0o600, 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := copyState(from, to); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]fs.FileMode)
	err := filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		rel, _ := filepath.Rel(to, path)
		got[rel] = info.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got["sub/file"] != 0o640 || got["link"].Type() != fs.ModeSymlink || got["pipe"].Type() != fs.ModeNamedPipe || got["sub"].Perm() != 0o750 || len(got) != 5 {
		t.Errorf("copied %v", got)
	}
	if err := os.RemoveAll(from); err != nil {
		t.Fatal(err)
	}
	if err := copyState(from, to); err != nil {
		t.Errorf("what is there is whole, and copying it again says %v", err)
	}
}

func TestStateThatHadNoRoomIsNotCopied(t *testing.T) {
	for name, grow := range map[string]func(file string) error{
		"a hole": func(file string) error { return os.Truncate(file, runRoom+1) },
		"links": func(file string) error {
			if err := os.Truncate(file, runRoom/4); err != nil {
				return err
			}
			for i := range 4 {
				if err := os.Link(file, fmt.Sprint(file, i)); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			file := filepath.Join(from, "file")
			if err := os.Mkdir(from, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := grow(file); err != nil {
				t.Fatal(err)
			}
			if err := copyState(from, to); err == nil || !strings.Contains(err.Error(), "room") {
				t.Errorf("copy: %v", err)
			}
			if left, _ := filepath.Glob(to + "*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
