package dormouse

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Packages are what a sandbox has beside its image, as each package manager calls
// them: a name, and a version in the manager's own way if that matters.
type Packages struct {
	Apt   []string `json:"apt,omitempty"`
	Cargo []string `json:"cargo,omitempty"`
	Gem   []string `json:"gem,omitempty"`
	Go    []string `json:"go,omitempty"`
	Npm   []string `json:"npm,omitempty"`
	Pip   []string `json:"pip,omitempty"`
}

// What packages may be.
const (
	MaxPackages = 200 // of all managers together
	MaxPackage  = 256 // bytes
)

// The package managers.
const (
	ManagerApt   = "apt"
	ManagerCargo = "cargo"
	ManagerGem   = "gem"
	ManagerGo    = "go"
	ManagerNpm   = "npm"
	ManagerPip   = "pip"
)

// All goes through the managers that have something to install, in the order in
// which they do.
func (p Packages) All() iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for _, m := range []struct {
			name string
			list []string
		}{{ManagerApt, p.Apt}, {ManagerCargo, p.Cargo}, {ManagerGem, p.Gem}, {ManagerGo, p.Go}, {ManagerNpm, p.Npm}, {ManagerPip, p.Pip}} {
			if len(m.list) > 0 && !yield(m.name, m.list) {
				return
			}
		}
	}
}

// With is these and more packages of a manager.
func (p Packages) With(manager string, names ...string) (Packages, error) {
	list, ok := map[string]*[]string{
		ManagerApt: &p.Apt, ManagerCargo: &p.Cargo, ManagerGem: &p.Gem, ManagerGo: &p.Go, ManagerNpm: &p.Npm, ManagerPip: &p.Pip,
	}[manager]
	if !ok {
		return p, fmt.Errorf("%q is no package manager; there are apt, cargo, gem, go, npm and pip: %w", truncate(manager, 40), ErrInvalid)
	}
	*list = slices.Concat(*list, names)
	return p, nil
}

// IsZero reports whether there are none.
func (p Packages) IsZero() bool { return p.Equal(Packages{}) }

// Equal reports whether two lists are the same.
func (p Packages) Equal(other Packages) bool {
	return slices.Equal(p.Apt, other.Apt) && slices.Equal(p.Cargo, other.Cargo) && slices.Equal(p.Gem, other.Gem) &&
		slices.Equal(p.Go, other.Go) && slices.Equal(p.Npm, other.Npm) && slices.Equal(p.Pip, other.Pip)
}

// Validate refuses what is not the name of a package. Its errors begin with the
// manager.
func (p Packages) Validate() error {
	n := 0
	for manager, list := range p.All() {
		if n += len(list); n > MaxPackages {
			return fmt.Errorf("%s: there are more than %d packages: %w", manager, MaxPackages, ErrInvalid)
		}
		for i, name := range list {
			if err := validatePackage(name); err != nil {
				return fmt.Errorf("%s[%d]: %q is not the name of a package: %w: %w", manager, i, truncate(name, 40), err, ErrInvalid)
			}
		}
	}
	return nil
}

// validatePackage refuses what a package manager could take for something else
// than one of its packages: an option, a file or an address.
func validatePackage(s string) error {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }
	switch {
	case s == "" || len(s) > MaxPackage:
		return fmt.Errorf("it must have 1 to %d bytes", MaxPackage)
	case !letter(rune(s[0])) && s[0] != '@':
		return fmt.Errorf("it must begin with a letter or a digit")
	case strings.HasSuffix(s, "-"): // apt would remove it
		return fmt.Errorf("it must not end with -")
	case strings.Contains(s, "://") || strings.Contains(s, "..") || strings.Contains(s, "//"):
		return fmt.Errorf("it must not be an address or a path")
	}
	for _, r := range s {
		if !letter(r) && !strings.ContainsRune("@/._+-:~=<>!^*[],", r) {
			return fmt.Errorf("it has the character %q", r)
		}
	}
	return nil
}
