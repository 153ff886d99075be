//go:build linux

package rootfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// FuzzTarball reads an image out of a hostile tar.
func FuzzTarball(f *testing.F) {
	im := twoLayers(f)
	f.Add(must(os.ReadFile(saveTarball(f, im))))
	f.Add(layertest.NewTar(f).File("manifest.json", `[{"Config": "c", "Layers": ["l"]}]`).File("c", `{}`).Add(layertest.Symlink("l", "l")).Bytes())
	f.Add(layertest.NewTar(f).File("index.json", `{"manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json", "digest": "sha256:00"}]}`).Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = rootfs.ReadTarball(path)
	})
}

// FuzzRef reads references that clients give. One in full leads to itself, and to
// no file.
func FuzzRef(f *testing.F) {
	for _, ref := range []string{"image", "registry.example/name:tag", "127.0.0.1:5000/a/b@sha256:" + strings.Repeat("0", 64), "dir:/", "a:b@c", "//"} {
		f.Add(ref)
	}
	f.Fuzz(func(t *testing.T, text string) {
		full, err := rootfs.ParseRef(text)
		if err != nil {
			return
		}
		if again, err := rootfs.ParseRef(full); err != nil || again != full {
			t.Errorf("%q leads to %q, which leads to %q, %v", text, full, again, err)
		}
		if rootfs.Local(full) {
			t.Errorf("%q leads to %q, a file", text, full)
		}
	})
}
