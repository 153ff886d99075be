//go:build linux

package gvisor

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/packages"
)

func TestARootThatAptInstallsInHasTheModesOfAnyMachine(t *testing.T) {
	root, err := makeRoot(filepath.Join(t.TempDir(), "roots"), "/bin")
	if err != nil {
		t.Fatal(err)
	}
	if err := packages.SeedApt(root.dir); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type() == fs.ModeSymlink {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode()&0o044 != 0o044 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	scripts, _ := filepath.Glob("/var/lib/dpkg/info/*.postinst")
	for _, name := range scripts {
		if at, err := os.Stat(filepath.Join(root.dir, name)); err != nil || at.Mode().Perm() != 0o755 {
			t.Errorf("%s is %v, %v", name, at, err)
		}
	}
}
