package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse/internal/filemode"
)

// aptSettings are what apt and dpkg need of the host's /etc, and everyone may know.
var aptSettings = []string{
	"adduser.conf", "apt/keyrings", "apt/preferences.d", "apt/trusted.gpg", "apt/trusted.gpg.d", "debconf.conf", "deluser.conf", "dpkg", "login.defs",
}

// SeedApt prepares a root file system with this machine's programs for apt: it copies the
// list of installed packages, the sources and the system accounts.
func SeedApt(root string) error {
	if err := filemode.MkdirAll(filepath.Join(root, "etc/apt")); err != nil {
		return fmt.Errorf("prepare apt: %w", err)
	}
	for _, name := range aptSettings {
		if err := filemode.CopyTree(filepath.Join("/etc", name), filepath.Join(root, "etc", name)); err != nil {
			return fmt.Errorf("prepare apt: %w", err)
		}
	}
	for _, dir := range []string{"var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/cache/debconf", "var/log/apt", "etc/apt/apt.conf.d", "etc/apt/sources.list.d"} {
		if err := filemode.MkdirAll(filepath.Join(root, dir)); err != nil {
			return fmt.Errorf("prepare apt: %w", err)
		}
	}
	known := filepath.Join(root, "var/lib/dpkg")
	err := os.CopyFS(known, os.DirFS("/var/lib/dpkg"))
	if err == nil {
		err = filemode.Normalize(known)
	}
	if err == nil {
		err = seedSources(root)
	}
	if err == nil {
		err = seedAccounts(root)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("prepare apt: %w", err)
	}
	return nil
}

// password matches a URL with credentials.
var password = regexp.MustCompile(`://[^/\s]*@`)

// seedSources copies the lists of sources, except those with a password.
func seedSources(root string) error {
	names := []string{"/etc/apt/sources.list"}
	for _, pattern := range []string{"*.list", "*.sources"} {
		found, err := filepath.Glob("/etc/apt/sources.list.d/" + pattern)
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && password.Match(text) {
			continue
		}
		if err == nil {
			err = filemode.WriteFile(filepath.Join(root, name), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// seedAccounts adds the system accounts of this machine, which own files of packages.
// They cannot be logged in to.
func seedAccounts(root string) error {
	const system = 1000
	for _, name := range []string{"etc/passwd", "etc/group"} {
		own, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		host, err := os.ReadFile("/" + name)
		if err != nil {
			return err
		}
		all := string(own)
		for line := range strings.Lines(string(host)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			const id = 2
			if len(fields) <= id || strings.HasPrefix(all, fields[0]+":") || strings.Contains(all, "\n"+fields[0]+":") {
				continue
			}
			if n, err := strconv.Atoi(fields[id]); err != nil || n >= system {
				continue
			}
			if name == "etc/group" {
				fields[len(fields)-1] = "" // its members
			}
			fields[1] = "x"
			all += strings.Join(fields, ":") + "\n"
		}
		if err := filemode.WriteFile(filepath.Join(root, name), []byte(all)); err != nil {
			return err
		}
	}
	return nil
}
