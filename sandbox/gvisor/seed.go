//go:build linux

package gvisor

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

// aptSettings are what of the host's /etc apt and dpkg need, and everyone may know.
var aptSettings = []string{
	"adduser.conf", "apt/keyrings", "apt/preferences.d", "apt/trusted.gpg", "apt/trusted.gpg.d", "debconf.conf", "deluser.conf", "dpkg", "login.defs",
}

// seedApt makes a root of this machine's programs one in which apt can install more:
// it is told which packages there are, where others come from, and which accounts
// they belong to.
func seedApt(root string) error {
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
	// Whether a package may be run is part of what is known of it.
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

// password is in an address that nobody else should know.
var password = regexp.MustCompile(`://[^/\s]*@`)

// seedSources copies where packages come from, but for what holds a password.
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

// seedAccounts gives the root the system's own accounts, which files of packages
// belong to. Nobody can log in to them.
func seedAccounts(root string) error {
	const system = 1000
	for _, name := range []string{"etc/passwd", "etc/group"} {
		ours, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		theirs, err := os.ReadFile("/" + name)
		if err != nil {
			return err
		}
		all := string(ours)
		for line := range strings.Lines(string(theirs)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			const id = 2
			if len(fields) <= id || strings.HasPrefix(all, fields[0]+":") || strings.Contains(all, "\n"+fields[0]+":") {
				continue
			}
			if n, err := strconv.Atoi(fields[id]); err != nil || n >= system {
				continue
			}
			if name == "etc/group" {
				fields[len(fields)-1] = "" // who else is in it
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
