// Command show prints all that can be seen of a directory. It is put into images,
// and prints the same inside a container and outside.
package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

func main() {
	inodes := make(map[uint64]string)
	err := filepath.WalkDir(os.Args[1], func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var at syscall.Stat_t
		if err := syscall.Lstat(path, &at); err != nil {
			return err
		}
		name, err := filepath.Rel(os.Args[1], path)
		if err != nil {
			return err
		}
		fmt.Printf("%q mode %o owner %d:%d modified %d", name, at.Mode, at.Uid, at.Gid, at.Mtim.Sec)
		switch {
		case d.Type().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Printf(" %d bytes %x", at.Size, sha256.Sum256(raw))
			if first, ok := inodes[at.Ino]; ok {
				fmt.Printf(" also %q", first)
			}
			inodes[at.Ino] = name
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Printf(" -> %q", to)
		}
		fmt.Println()
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "show:", err)
		os.Exit(1)
	}
}
