//go:build linux

// Package mount mounts and unmounts on this machine, and says what is mounted.
package mount

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// At mounts a source at a directory that exists.
func At(source, target, fstype string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, fstype, flags, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", fstype, target, err)
	}
	return nil
}

// Bind mounts a directory at another, or at itself, with a propagation of its own.
func Bind(source, target string, propagation uintptr) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if err := unix.Mount("", target, "", propagation, ""); err != nil {
		return fmt.Errorf("bind %s: %w", target, errors.Join(err, unix.Unmount(target, unix.MNT_DETACH)))
	}
	return nil
}

// UnmountAll unmounts everything at and below a directory, the innermost first.
func UnmountAll(dir string) error {
	mounts, err := Under(dir)
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(mounts) {
		if err := unix.Unmount(at, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			// It is busy. Detached, it goes when the last user closes it.
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", at, err)
			}
		}
	}
	return nil
}

// Under lists the mount points at and below a directory, in the order they were mounted.
func Under(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	var found []string
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		fields := strings.Fields(in.Text())
		const mountPoint = 4
		if len(fields) <= mountPoint {
			continue
		}
		at := unescape.Replace(fields[mountPoint])
		if at == dir || strings.HasPrefix(at, dir+"/") {
			found = append(found, at)
		}
	}
	return found, in.Err()
}

// unescape reads a path as the kernel writes it to mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Is reports whether something is mounted at a directory.
func Is(dir string) (bool, error) {
	all, err := Under(dir)
	return slices.Contains(all, dir), err
}
