//go:build linux

// Package layertest has a workspace that is written to at random, and compares
// what it was like with what became of it.
package layertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Workspace is a directory that is written to at random, as a sandbox would.
type Workspace struct {
	T *testing.T
	R *rand.Rand
	// Dir is where it is mounted.
	Dir string
}

// Step does something to the workspace, and never through a link in it: that may
// lead anywhere.
func (w *Workspace) Step() {
	w.T.Helper()
	name, other := w.name(), w.name()
	if linked(w.Dir, name) || linked(w.Dir, other) {
		if w.R.IntN(3) == 0 {
			must(w.T, unlink(w.Dir, name))
		}
		return
	}
	var err error
	switch w.R.IntN(20) {
	case 0, 1, 2:
		err = os.WriteFile(name, w.bytes(), w.mode())
	case 3, 4:
		err = w.change(name, os.O_APPEND|os.O_WRONLY, func(f *os.File) error { _, err := f.Write(w.bytes()); return err })
	case 5:
		err = os.Truncate(name, int64(w.R.IntN(5000)))
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
		err = unix.Setxattr(name, fmt.Sprintf("user.x%d", w.R.IntN(3)), w.bytes()[:w.R.IntN(20)], 0)
	case 14:
		err = w.change(name, os.O_CREATE|os.O_WRONLY, func(f *os.File) error {
			_, err := f.WriteAt(w.bytes(), int64(w.R.IntN(8<<20)))
			return err
		})
	case 15, 16:
		err = os.MkdirAll(name, 0o700|w.mode())
	case 17: // a directory becomes a file, or a file a directory
		if i, e := os.Lstat(name); e == nil {
			must(w.T, os.RemoveAll(name))
			if i.IsDir() {
				err = os.WriteFile(name, w.bytes(), w.mode())
			} else {
				err = os.Mkdir(name, 0o755)
			}
		}
	case 18:
		err = errors.Join(os.Lchown(name, w.R.IntN(4), w.R.IntN(4)))
	case 19:
		err = os.Chtimes(name, time.Time{}, time.Unix(int64(w.R.IntN(1<<31)), int64(w.R.IntN(1e9))))
	}
	var failed *fs.PathError
	var linked *os.LinkError
	var number unix.Errno
	if err != nil && !errors.As(err, &failed) && !errors.As(err, &linked) && !errors.As(err, &number) {
		w.T.Fatal(err)
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
func (w *Workspace) name() string {
	names := []string{"a", "b", "c", "deep", ".wh.x", "new\nline", "é"}
	parts := []string{w.Dir}
	for range 1 + w.R.IntN(3) {
		parts = append(parts, names[w.R.IntN(len(names))])
	}
	return filepath.Join(parts...)
}

func (w *Workspace) target() string {
	return []string{"a", "../b", "/nowhere/else", "nowhere", "."}[w.R.IntN(5)]
}

func (w *Workspace) bytes() []byte {
	return bytes.Repeat([]byte{byte(w.R.IntN(256))}, 20+w.R.IntN(3000))
}

func (w *Workspace) mode() os.FileMode {
	return []os.FileMode{0o644, 0o600, 0o755, 0, 0o777 | os.ModeSetuid, 0o755 | os.ModeSticky}[w.R.IntN(6)]
}

func (w *Workspace) change(name string, flags int, do func(*os.File) error) error {
	if i, err := os.Lstat(name); err == nil && !i.Mode().IsRegular() {
		return nil // it would leave the workspace
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// Mount mounts layers that are in one directory, the lowest first, with more
// options if any. From there their names are short enough to be a list.
func Mount(t testing.TB, at string, layers []string, more string) {
	t.Helper()
	var names []string
	for _, dir := range slices.Backward(layers) {
		name, err := filepath.Rel(filepath.Dir(layers[0]), dir)
		must(t, err)
		names = append(names, name)
	}
	mounted := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with us
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir(filepath.Dir(layers[0]))
		}
		if err == nil {
			err = unix.Mount("overlay", at, "overlay", 0, "lowerdir="+strings.Join(names, ":")+more+",redirect_dir=off,metacopy=off")
		}
		mounted <- err
	}()
	must(t, <-mounted)
}

// Describe writes down everything that can be seen of a tree.
func Describe(t testing.TB, dir string) string {
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

// Difference shows the lines that only one of two has.
func Difference(want, got string) string {
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
