package rootfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

func TestWithoutAListOnlyRegistriesMayBeNamed(t *testing.T) {
	none, err := rootfs.ParseAllow(nil)
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]bool{
		"debian": true, "registry.example/team/app:1": true, "registry.example:5000/app": true,
		"dir:/etc": false, "dir:/": false, "oci:/root": false, "tarball:/root/image.tar": false, "host": false,
		"Not A Reference": false, "": false, "dir:relative": false,
	} {
		if got := none.Check(ref) == nil; got != want {
			t.Errorf("%q: %v", ref, got)
		}
	}
}

func TestAListIsWhatItLeadsTo(t *testing.T) {
	root := t.TempDir()
	images, secret := filepath.Join(root, "images"), filepath.Join(root, "secret")
	for _, dir := range []string{filepath.Join(images, "a"), secret, filepath.Join(root, "images-of-others")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(images, "out")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		entry, ref string
		want       bool
	}{
		"a repository":                        {"registry.example/team", "registry.example/team", true},
		"any tag of it":                       {"registry.example/team", "registry.example/team:1", true},
		"one below it":                        {"registry.example/team", "registry.example/team/app:1", true},
		"one that begins alike":               {"registry.example/team", "registry.example/team-evil", false},
		"another registry":                    {"registry.example/team", "registry.example.evil/team", false},
		"a short name":                        {"debian", "index.docker.io/library/debian:12", true},
		"a short name that is a registry":     {"debian", "debian:5000/app", false},
		"one tag":                             {"debian:12", "debian:12", true},
		"another tag":                         {"debian:12", "debian:13", false},
		"a registry with a port":              {"registry.example:5000/app", "registry.example:5000/app:2", true},
		"the same name at another port":       {"registry.example:5000/app", "registry.example/app", false},
		"a whole registry":                    {"registry.example/", "registry.example/a/b:c", true},
		"another whole registry":              {"registry.example/", "registry.example.evil/a", false},
		"this machine":                        {"host", "host", true},
		"no registry has this machine":        {"registry.example/", "host", false},
		"a directory":                         {"dir:" + images, "dir:" + images, true},
		"one in it":                           {"dir:" + images, "dir:" + images + "/a", true},
		"one beside it":                       {"dir:" + images, "dir:" + secret, false},
		"one that begins like it":             {"dir:" + images, "dir:" + root + "/images-of-others", false},
		"a way up and out":                    {"dir:" + images, "dir:" + images + "/../secret", false},
		"a link out":                          {"dir:" + images, "dir:" + images + "/out", false},
		"one that is not there":               {"dir:" + images, "dir:" + images + "/none", false},
		"another kind":                        {"dir:" + images, "oci:" + images + "/a", false},
		"files when only registries are":      {"registry.example/", "dir:/etc", false},
		"a registry when only files are":      {"dir:" + images, "debian", true},
		"a registry when another is":          {"registry.example/", "debian", false},
		"what is not clean though it is this": {"dir:" + images, "dir:" + images + "/", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := rootfs.ParseAllow([]string{c.entry})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Check(c.ref); (err == nil) != c.want {
				t.Errorf("%q by %q: %v", c.ref, c.entry, err)
			}
		})
	}
}

func TestAListThatCannotBeMeantIsRefused(t *testing.T) {
	for _, entry := range []string{"", "/", "dir:images", "dir:/a/../b", "oci:", "Not A Reference", "*"} {
		if _, err := rootfs.ParseAllow([]string{entry}); err == nil {
			t.Errorf("%q is taken", entry)
		}
	}
}

func FuzzAllow(f *testing.F) {
	for _, ref := range []string{"debian", "debian:5000/a", "dir:/srv/../etc", "oci:/srv", "tarball:", "host", "registry.example/a@sha256:0", "a//b", "registry.example/../x"} {
		f.Add(ref)
	}
	allow, err := rootfs.ParseAllow([]string{"registry.example/team", "dir:/nonexistent/images"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		if allow.Check(ref) == nil && !allow.Lists(ref) {
			t.Errorf("%q is allowed, and nothing lists it", ref)
		}
		if allow.Lists(ref) && rootfs.Local(ref) {
			t.Errorf("%q is a file, and none is listed", ref)
		}
	})
}
