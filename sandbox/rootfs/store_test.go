//go:build linux

package rootfs_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/dormouse-run/dormouse/sandbox/rootfs"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// twoLayers is an image of which the second layer changes the first.
func twoLayers(t testing.TB) v1.Image {
	return imageOf(t, v1.Config{
		Env: []string{"PATH=/bin", "BROKEN", "=none"}, User: "1000:1000", WorkingDir: "srv", Cmd: []string{"sh"}, Entrypoint: []string{"/init"},
	},
		gzipped(t, layertest.NewTar(t).File("etc/a", "old").File("etc/b", "b").Bytes()),
		gzipped(t, layertest.NewTar(t).File("etc/a", "new").Add(layertest.Whiteout("etc/b")).Bytes()))
}

const twoLayersTree = "etc/\netc/a = new"

func saveTarball(t testing.TB, im v1.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag("registry.example/saved:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, im); err != nil {
		t.Fatal(err)
	}
	return path
}

func saveLayout(t testing.TB, images ...mutate.IndexAddendum) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, images...)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tarOf is a directory as a tar.
func tarOf(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dir.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnImageIsReadWhereverItLies(t *testing.T) {
	im := twoLayers(t)
	config, err := im.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	written := saveLayout(t, mutate.IndexAddendum{Add: im})
	for _, test := range []struct{ name, ref, digest string }{
		{"docker save", "tarball:" + saveTarball(t, im), config.String()},
		{"layout", "oci:" + written, digestOf(t, im)},
		{"layout in a tar", "tarball:" + tarOf(t, written), digestOf(t, im)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openStore(t, rootfs.Options{})
			var seen []rootfs.Progress
			r, err := s.Root(t.Context(), test.ref, func(p rootfs.Progress) { seen = append(seen, p) })
			if err != nil {
				t.Fatal(err)
			}
			want := rootfs.Root{
				Dir: r.Dir, Digest: test.digest, Env: []string{"PATH=/bin"}, User: "1000:1000", Workdir: "/srv",
				Cmd: []string{"sh"}, Entrypoint: []string{"/init"},
			}
			if diff := cmp.Diff(want, r); diff != "" {
				t.Error(diff)
			}
			layertest.WantTree(t, r.Dir, twoLayersTree)
			last := seen[len(seen)-1]
			if last.Layer != 2 || last.Layers != 2 || last.Bytes == 0 || last.Bytes != last.Total || last.Entries < 4 {
				t.Errorf("last progress = %+v", last)
			}
			again, err := s.Root(t.Context(), test.ref, func(rootfs.Progress) { t.Error("it was unpacked twice") })
			if err != nil || again.Dir != r.Dir {
				t.Errorf("the second time = %+v, %v", again, err)
			}
		})
	}
}

func TestADirectoryIsUsedAsItIs(t *testing.T) {
	s, dir := openStore(t, rootfs.Options{}), t.TempDir()
	r, err := s.Root(t.Context(), "dir:"+dir+"/", nil)
	if err != nil || r.Dir != dir || r.Digest != "" {
		t.Errorf("root = %+v, %v", r, err)
	}
	slash := filepath.Join(t.TempDir(), "slash")
	if err := os.Symlink("/", slash); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"dir:/", "dir:" + slash, "dir:", "dir:relative", "dir://..", "dir:" + dir + "/missing", "dir:/etc/passwd"} {
		if r, err := s.Root(t.Context(), ref, nil); err == nil {
			t.Errorf("%s = %+v, want an error", ref, r)
		}
	}
}

func TestTheImageForThisMachineIsChosen(t *testing.T) {
	ours := imageOf(t, v1.Config{}, gzipped(t, layertest.NewTar(t).File("ours", "ours").Bytes()))
	theirs := imageOf(t, v1.Config{}, gzipped(t, layertest.NewTar(t).File("theirs", "").Bytes()))
	on := func(im mutate.Appendable, os, arch string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: im, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: os, Architecture: arch}}}
	}
	inner := mutate.AppendManifests(empty.Index, on(theirs, "linux", "pdp11"), on(theirs, "unknown", "unknown"), on(ours, "linux", runtime.GOARCH))
	foreign, err := mutate.ConfigFile(theirs, &v1.ConfigFile{OS: "plan9", Architecture: "pdp11", RootFS: must(theirs.ConfigFile()).RootFS})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		images []mutate.IndexAddendum
		err    string
	}{
		{"among others", []mutate.IndexAddendum{on(theirs, "linux", "pdp11"), on(ours, "linux", runtime.GOARCH)}, ""},
		{"in an index of its own", []mutate.IndexAddendum{{Add: inner}}, ""},
		{"under two names", []mutate.IndexAddendum{{Add: ours}, {Add: ours}}, ""},
		{"none", []mutate.IndexAddendum{on(theirs, "linux", "pdp11")}, "no image for linux"},
		{"two", []mutate.IndexAddendum{{Add: ours}, {Add: theirs}}, "more than one image"},
		{"one for another machine", []mutate.IndexAddendum{{Add: foreign}}, "is for \"plan9/pdp11\""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := openStore(t, rootfs.Options{}).Root(t.Context(), "oci:"+saveLayout(t, test.images...), nil)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error = %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			layertest.WantTree(t, r.Dir, "ours = ours")
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// edit changes a blob of a layout.
func edit(t *testing.T, layout string, digest v1.Hash, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(layout, "blobs", digest.Algorithm, digest.Hex)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(raw), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedImageLeavesNothing(t *testing.T) {
	plain := layertest.NewTar(t).File("etc/a", strings.Repeat("some text ", 1000)).Bytes()
	im := imageOf(t, v1.Config{}, gzipped(t, plain))
	m := must(im.Manifest())
	truncate := func(b []byte) []byte { return b[:len(b)/2] }
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		err    string
	}{
		{"another layer", func(t *testing.T, dir string) {
			edit(t, dir, m.Layers[0].Digest, func([]byte) []byte { return layertest.NewTar(t).File("etc/b", "b").Bytes() })
		}, "damaged"},
		{"bytes after the tar", func(t *testing.T, dir string) {
			edit(t, dir, m.Layers[0].Digest, func([]byte) []byte { return append(slices.Clone(plain), "more"...) })
		}, "damaged"},
		{"half a layer", func(t *testing.T, dir string) { edit(t, dir, m.Layers[0].Digest, truncate) }, "unexpected EOF"},
		{"half a layer, not compressed", func(t *testing.T, dir string) {
			edit(t, dir, m.Layers[0].Digest, func([]byte) []byte { return plain[:512] })
		}, "EOF"},
		{"no byte of a layer", func(t *testing.T, dir string) {
			edit(t, dir, m.Layers[0].Digest, func([]byte) []byte { return nil })
		}, "damaged"},
		{"a layer that is no tar", func(t *testing.T, dir string) {
			edit(t, dir, m.Layers[0].Digest, func([]byte) []byte { return bytes.Repeat([]byte("text"), 500) })
		}, "invalid tar header"},
		{"a missing layer", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "blobs", "sha256", m.Layers[0].Digest.Hex)); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		{"another manifest", func(t *testing.T, dir string) {
			edit(t, dir, must(im.Digest()), func(b []byte) []byte { return append(b, ' ') })
		}, "damaged"},
		{"another configuration", func(t *testing.T, dir string) {
			edit(t, dir, m.Config.Digest, func(b []byte) []byte { return append(b, ' ') })
		}, "damaged"},
		{"a pipe as the index", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "index.json")); err != nil {
				t.Fatal(err)
			}
			mkfifo(t, filepath.Join(dir, "index.json"))
		}, "is no file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := saveLayout(t, mutate.IndexAddendum{Add: im})
			test.damage(t, dir)
			wantRefused(t, rootfs.Options{}, "oci:"+dir, test.err)
		})
	}
}

// wantRefused expects that a reference leads to an error, and that nothing of
// the image is kept.
func wantRefused(t *testing.T, opts rootfs.Options, ref, text string) {
	t.Helper()
	opts.Dir = t.TempDir()
	r, err := openStore(t, opts).Root(t.Context(), ref, nil)
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("root = %+v, %v, want an error with %q", r, err, text)
	}
	if got := layertest.List(t, opts.Dir); !slices.Equal(got, []string{"refs/"}) {
		t.Errorf("what is left = %v, want nothing", got)
	}
}

func TestLayersComeInManyForms(t *testing.T) {
	raw := layertest.NewTar(t).File("a", "a").Bytes()
	for _, test := range []struct {
		name  string
		layer v1.Layer
		err   string
	}{
		{"zstd", storedAs(zstdOf(t, raw), raw, types.OCILayerZStd), ""},
		{"zstd that says it is gzip", storedAs(zstdOf(t, raw), raw, types.DockerLayer), ""},
		{"not compressed", storedAs(raw, raw, types.OCIUncompressedLayer), ""},
		{"half of zstd", storedAs(zstdOf(t, raw)[:50], raw, types.OCILayerZStd), "unexpected EOF"},
		{"zstd with too large a window", storedAs([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x98, 1, 0, 0}, raw, types.OCILayerZStd), "window size"},
		{"a text", storedAs(raw, raw, "text/plain"), "layer is \"text/plain\""},
		{"foreign", storedAs(raw, raw, types.DockerForeignLayer), "lies elsewhere"},
		{"restricted", storedAs(raw, raw, types.OCIRestrictedLayer), "lies elsewhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ref := "oci:" + saveLayout(t, mutate.IndexAddendum{Add: imageOf(t, v1.Config{}, test.layer)})
			if test.err != "" {
				wantRefused(t, rootfs.Options{}, ref, test.err)
				return
			}
			r, err := openStore(t, rootfs.Options{}).Root(t.Context(), ref, nil)
			if err != nil {
				t.Fatal(err)
			}
			layertest.WantTree(t, r.Dir, "a = a")
		})
	}
}

func TestManifestsThatAreNoImagesAreRefused(t *testing.T) {
	im := twoLayers(t)
	for _, test := range []struct {
		name   string
		change func(*v1.Manifest)
		err    string
	}{
		{"an artifact", func(m *v1.Manifest) { m.Config.MediaType = "application/vnd.example.chart+json" }, "no image"},
		{"a layer elsewhere", func(m *v1.Manifest) { m.Layers[0].URLs = []string{"http://127.0.0.1/"} }, "lies elsewhere"},
		{"a layer too many", func(m *v1.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, "3 layers and describes 2"},
		{"a thousand layers", func(m *v1.Manifest) { m.Layers = slices.Repeat(m.Layers, 500) }, "1000 layers"},
		{"less than no bytes", func(m *v1.Manifest) { m.Layers[0].Size = -1 }, "-1 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := saveLayout(t, mutate.IndexAddendum{Add: im})
			m := must(im.Manifest()).DeepCopy()
			test.change(m)
			raw := must(json.Marshal(m))
			digest, size, err := v1.SHA256(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if err := layout.Path(dir).WriteBlob(digest, readCloser(raw)); err != nil {
				t.Fatal(err)
			}
			index := v1.IndexManifest{SchemaVersion: 2, Manifests: []v1.Descriptor{{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}}}
			if err := os.WriteFile(filepath.Join(dir, "index.json"), must(json.Marshal(index)), 0o600); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, rootfs.Options{}, "oci:"+dir, test.err)
		})
	}
}

func TestBombsAreRefused(t *testing.T) {
	zeros := layertest.NewTar(t).File("zeros", strings.Repeat("\x00", 8<<20)).Bytes()
	small := layertest.NewTar(t).File("small", "small").Bytes()
	tail := append(slices.Clone(small), make([]byte, 8<<20)...)
	names := layertest.NewTar(t)
	for i := range 1000 {
		names.Add(layertest.Dir("d" + strings.Repeat("x", i%100) + "/" + strings.Repeat("y", 1+i/100)))
	}
	for _, test := range []struct {
		name  string
		layer v1.Layer
		err   string
	}{
		{"a large file", gzipped(t, zeros), "too large"},
		{"a large file in zstd", storedAs(zstdOf(t, zeros), zeros, types.OCILayerZStd), "too large"},
		{"a long tail after the tar", gzipped(t, tail), "too large"},
		{"many names", gzipped(t, names.Bytes()), "too many entries"},
		{"much that unpacks to nothing", storedAs(bytes.Repeat(zstdOf(t, nil), 1<<20), nil, types.OCILayerZStd), "too large"},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := rootfs.Options{MaxBytes: 4 << 20, MaxEntries: 500}
			wantRefused(t, opts, "oci:"+saveLayout(t, mutate.IndexAddendum{Add: imageOf(t, v1.Config{}, test.layer)}), test.err)
		})
	}
}

func TestManyCallersShareOneImage(t *testing.T) {
	opts := rootfs.Options{Dir: t.TempDir()}
	ref := "tarball:" + saveTarball(t, twoLayers(t))
	// Two stores stand for two processes: a lock of one file does not know the difference.
	stores := []*rootfs.Store{openStore(t, opts), openStore(t, opts)}
	var mu sync.Mutex
	unpacked := 0
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			r, err := stores[i%2].Root(t.Context(), ref, func(p rootfs.Progress) {
				if p.Layer == 1 && p.Bytes == 0 {
					mu.Lock()
					defer mu.Unlock()
					unpacked++
				}
			})
			if err != nil {
				t.Error(err)
				return
			}
			layertest.WantTree(t, r.Dir, twoLayersTree)
		})
	}
	all.Wait()
	if unpacked != 1 {
		t.Errorf("it was unpacked %d times", unpacked)
	}
}

func TestAnInterruptedCallLeavesNothing(t *testing.T) {
	opts := rootfs.Options{Dir: t.TempDir()}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody waits any more")
	_, err := openStore(t, opts).Root(ctx, "tarball:"+saveTarball(t, twoLayers(t)), func(rootfs.Progress) { cancel(why) })
	if !errors.Is(err, why) {
		t.Errorf("error = %v, want %v", err, why)
	}
	if got := layertest.List(t, opts.Dir); !slices.Equal(got, []string{"refs/"}) {
		t.Errorf("what is left = %v, want nothing", got)
	}
}

func TestCollectKeepsWhatIsWanted(t *testing.T) {
	opts := rootfs.Options{Dir: t.TempDir()}
	s := openStore(t, opts)
	now := time.Now()
	s.SetClock(func() time.Time { return now })
	wanted, err := s.Root(t.Context(), "tarball:"+saveTarball(t, twoLayers(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	other := "tarball:" + saveTarball(t, imageOf(t, v1.Config{}, gzipped(t, layertest.NewTar(t).File("x", "x").Bytes())))
	unwanted, err := s.Root(t.Context(), other, nil)
	if err != nil {
		t.Fatal(err)
	}
	collect := func() {
		t.Helper()
		if err := s.Collect(t.Context(), func(digest string) bool { return digest == wanted.Digest }); err != nil {
			t.Fatal(err)
		}
	}
	collect()
	if _, err := os.Stat(unwanted.Dir); err != nil {
		t.Errorf("an image was removed just after it was handed out: %v", err)
	}
	now = now.Add(2 * time.Hour)
	collect()
	if _, err := os.Stat(unwanted.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unwanted image is still there: %v", err)
	}
	layertest.WantTree(t, wanted.Dir, twoLayersTree)
	if names := must(os.ReadDir(opts.Dir)); len(names) != 2 {
		t.Errorf("what is left = %v, want one image and the references", names)
	}
	if r, err := s.Root(t.Context(), other, nil); err != nil || r.Dir != unwanted.Dir {
		t.Errorf("the image again = %+v, %v", r, err)
	}
}

func TestOnlyRootGetsThroughTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	openStore(t, rootfs.Options{Dir: dir})
	if info := must(os.Stat(dir)); info.Mode().Perm() != 0o700 {
		t.Errorf("mode = %v, want 0700", info.Mode())
	}
}

func TestLocalReferencesAreKnown(t *testing.T) {
	for ref, want := range map[string]bool{
		"dir:/": true, "oci:/x": true, "tarball:/x.tar": true,
		"registry.example/oci:1": false, "dir": false, "localhost:5000/dir:/x": false, "": false,
	} {
		if got := rootfs.Local(ref); got != want {
			t.Errorf("Local(%q) = %v", ref, got)
		}
	}
}
