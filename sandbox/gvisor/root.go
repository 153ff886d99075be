//go:build linux

package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/internal/filemode"
)

// rootFS is the root file system of sandboxes that have this machine's programs: read-
// only, without its settings, homes and secrets.
type rootFS struct {
	dir  string
	host []string // directories of the host that are bound in, read-only
}

// fromHost lists what programs need of the host's /etc, and everyone may know.
var fromHost = []string{
	"alternatives", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
	"localtime", "mime.types", "os-release", "perl", "protocols", "python3", "python3.11", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo",
}

// etc is the rest of a sandbox's /etc.
var etc = map[string]string{ //nolint:gosec // there are no passwords
	"passwd":        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":         "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
	"hosts":         "127.0.0.1 localhost dormouse\n::1 localhost ip6-localhost\n",
	"hostname":      "dormouse\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	"resolv.conf":   "",
	"shells":        "/bin/sh\n/bin/bash\n",
	"bash.bashrc":   "PS1='\\w\\$ '\n",
}

// profile is what a login shell reads.
func profile(path string) string {
	return "export PATH=" + path + "\n[ -z \"$BASH_VERSION\" ] || PS1='\\w\\$ '\n"
}

// newRoot begins the name of a root file system that is being made.
const newRoot = ".new-"

// makeRoot creates a root file system below dir, with a search path for login shells. Its
// name is a digest of its content, so that it never changes under a sandbox.
func makeRoot(dir, path string) (rootFS, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return rootFS{}, fmt.Errorf("make a root file system: %w", err)
	}
	tmp, err := os.MkdirTemp(dir, newRoot)
	if err != nil {
		return rootFS{}, fmt.Errorf("make a root file system: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as it is everywhere
		return rootFS{}, fmt.Errorf("make a root file system: %w", err)
	}
	r := rootFS{host: []string{"/usr"}}
	if err := r.fill(tmp, path); err != nil {
		return rootFS{}, fmt.Errorf("make a root file system: %w", err)
	}
	name, err := digestTree(tmp)
	if err != nil {
		return rootFS{}, fmt.Errorf("make a root file system: %w", err)
	}
	r.dir = filepath.Join(dir, name)
	if err := os.Rename(tmp, r.dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return rootFS{}, fmt.Errorf("make a root file system: %w", err)
	}
	return r, nil
}

func (r *rootFS) fill(at, path string) error {
	for _, dir := range []string{
		"dev", "etc/ssl", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr", "var/cache", "var/lib", "var/log", "var/tmp",
		insideBin, insideRun, insideSlot, insideWorkspace,
	} {
		if err := filemode.MkdirAll(filepath.Join(at, dir)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(at, dir), 0o1777|fs.ModeSticky); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		to, err := os.Readlink("/" + dir)
		switch {
		case err == nil:
			err = os.Symlink(to, filepath.Join(at, dir))
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		default: // /usr is not merged
			r.host = append(r.host, "/"+dir)
			err = filemode.MkdirAll(filepath.Join(at, dir))
		}
		if err != nil {
			return err
		}
	}
	for name, text := range etc {
		if err := filemode.WriteFile(filepath.Join(at, "etc", name), []byte(text)); err != nil {
			return err
		}
	}
	if err := filemode.WriteFile(filepath.Join(at, "etc", "profile"), []byte(profile(path))); err != nil {
		return err
	}
	for _, name := range fromHost {
		if err := filemode.CopyTree(filepath.Join("/etc", name), filepath.Join(at, "etc", name)); err != nil {
			return err
		}
	}
	return nil
}

// digestTree names a tree by its content.
func digestTree(dir string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s\x00%s\x00", rel, e.Type())
		switch e.Type() { //nolint:exhaustive // there is nothing else
		case 0:
			b, err := os.ReadFile(path) //nolint:gosec // of a directory of our own
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%d\x00%s", len(b), b)
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s\x00", to)
		}
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))[:16], err
}
