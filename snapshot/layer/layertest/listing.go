//go:build linux

package layertest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Listing writes down everything that can be seen of a tree, but for which names
// are those of one file.
func Listing(dir string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		line, err := entry(path, d)
		fmt.Fprintf(&b, "%q %s\n", name, line)
		return err
	})
	return b.String(), err
}

// entry writes down one entry of a tree.
func entry(path string, d fs.DirEntry) (string, error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%o %d:%d %d.%09d", s.Mode, s.Uid, s.Gid, s.Mtim.Sec, s.Mtim.Nsec)
	switch {
	case d.Type().IsRegular():
		raw, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if int64(len(raw)) != s.Size {
			return "", fmt.Errorf("%q has %d bytes, and %d were read: %s", path, s.Size, len(raw), runs(raw))
		}
		fmt.Fprintf(&b, " %d %x %s", s.Size, sha256.Sum256(raw), runs(raw))
	case d.Type()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
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
	return b.String(), nil
}

// runs says how the content of a file begins, as a hand writes it: so many of one
// byte, and of the next.
func runs(raw []byte) string {
	const most = 6
	var b strings.Builder
	for n := 0; n < most && len(raw) > 0; n++ {
		size := 1
		for size < len(raw) && raw[size] == raw[0] {
			size++
		}
		fmt.Fprintf(&b, "%02xx%d,", raw[0], size)
		raw = raw[size:]
	}
	return b.String()
}
