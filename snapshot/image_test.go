//go:build linux

package snapshot_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/snapshot"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
	"github.com/dormouse-run/dormouse/snapshot/snapshottest"
)

var meta = snapshot.Meta{Name: "dormouse/workspace", Created: time.Unix(1, 0), Labels: map[string]string{"session": "sesn_1"}}

func (h *home) export(layers ...dormouse.Layer) []byte {
	h.t.Helper()
	var b bytes.Buffer
	must(h.t, h.Export(h.t.Context(), &b, layers, meta))
	return b.Bytes()
}

func TestAnExportedChainIsImportedAsItWas(t *testing.T) {
	h := open(t)
	line := []dormouse.Layer{
		h.keep("a", "1", "d/", "", "d/x", "1", ".wh.odd", "1"), h.keep("-a", "", "d/", "", "-d/x", ""), h.keep("b", noise(1, 2<<20)), h.keep("-.wh.odd", ""),
	}
	image := h.export(line...)
	if !bytes.Equal(image, h.export(line...)) {
		t.Error("it is exported in two ways")
	}
	other := open(t)
	got, err := other.Import(t.Context(), bytes.NewReader(image), layer.Limits{})
	must(t, err)
	if !slices.Equal(got, line) {
		t.Errorf("imported are %v, exported were %v", got, line)
	}
	if got, want := other.shown(got), h.shown(line); got != want {
		t.Errorf("it is not what it was:\n%s", layertest.Difference(want, got))
	}
}

// Others read from it what there is.
func TestOthersReadWhatWasExported(t *testing.T) {
	h := open(t)
	g := h.staged("a", "1")
	f, err := os.Create(filepath.Join(g.Dir, "sparse"))
	must(t, err)
	must(t, f.Truncate(3<<20))
	must(t, f.Close())
	sparse, err := h.Put(t.Context(), g)
	must(t, err)
	line := []dormouse.Layer{sparse, h.keep("-a", "", "b", "2"), sparse}
	path := filepath.Join(t.TempDir(), "image.tar")
	must(t, os.WriteFile(path, h.export(line...), 0o600))
	image, err := tarball.ImageFromPath(path, nil)
	must(t, err)
	config, err := image.ConfigFile()
	must(t, err)
	layers, err := image.Layers()
	must(t, err)
	if len(layers) != 3 || config.OS != "linux" || config.Config.Labels["session"] != "sesn_1" || !config.Created.Equal(time.Unix(1, 0)) {
		t.Errorf("%d layers, configuration %+v", len(layers), config)
	}
	if id, err := layers[1].DiffID(); err != nil || id.String() != string(line[1].DiffID) {
		t.Errorf("the second layer is %v, %v", id, err)
	}
	plain, err := layers[0].Uncompressed()
	must(t, err)
	sizes := make(map[string]int64)
	for in := tar.NewReader(plain); ; {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		sizes[e.Name] = e.Size
	}
	if sizes["sparse"] != 3<<20 {
		t.Errorf("files are %v", sizes)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	must(t, err)
	if !slices.Equal(manifest[0].RepoTags, []string{"dormouse/workspace:latest"}) {
		t.Errorf("it is called %v", manifest[0].RepoTags)
	}
	// It is a layout too, and what we read of it is the same.
	names := make(map[string]bool)
	for in := tar.NewReader(bytes.NewReader(h.export(line...))); ; {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if names[e.Name] {
			t.Errorf("%s is there twice", e.Name)
		}
		names[e.Name] = true
	}
	if !names["oci-layout"] || !names["index.json"] || !names["manifest.json"] || len(names) != 7 {
		t.Errorf("files are %v", names)
	}
}

func TestALongChainIsExportedAsOneLayer(t *testing.T) {
	h := open(t)
	var line []dormouse.Layer
	for n := range 70 {
		line = append(line, h.keep(fmt.Sprint(n), "", fmt.Sprintf("-%d", n-1), ""))
	}
	got, err := h.Import(t.Context(), bytes.NewReader(h.export(line...)), layer.Limits{})
	must(t, err)
	if len(got) != 1 || !slices.Equal(list(t, h.use(1, got...)[0]), []string{"69"}) {
		t.Errorf("imported are %v", got)
	}
}

func TestWhatCannotBeExportedIsRefused(t *testing.T) {
	h := open(t)
	l := h.keep("a", "1")
	for name, c := range map[string]struct {
		layers []dormouse.Layer
		meta   snapshot.Meta
		want   error
	}{
		"nothing":   {nil, meta, dormouse.ErrInvalid},
		"no digest": {[]dormouse.Layer{{Digest: "x", DiffID: l.DiffID}}, meta, dormouse.ErrInvalid},
		"missing":   {[]dormouse.Layer{{Digest: l.DiffID, DiffID: l.DiffID}}, meta, dormouse.ErrNotFound},
		"no name":   {[]dormouse.Layer{l}, snapshot.Meta{Name: "a b"}, dormouse.ErrInvalid},
	} {
		if err := h.Export(t.Context(), io.Discard, c.layers, c.meta); !errors.Is(err, c.want) {
			t.Errorf("%s: export = %v, want %v", name, err, c.want)
		}
	}
	full := errors.New("full")
	if err := h.Export(t.Context(), failing{full}, []dormouse.Layer{l}, snapshot.Meta{}); !errors.Is(err, full) {
		t.Errorf("export = %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestImagesOfOthersAreImported(t *testing.T) {
	h := open(t)
	image := new(snapshottest.Image).
		Add(snapshottest.Tar("etc/", "", "etc/x", "1", "gone", "1"), snapshottest.Plain).
		Add(snapshottest.Tar("./etc/y", "2", "./.wh.gone", ""), snapshottest.Gzip).
		Add(snapshottest.Tar("/z", "3"), snapshottest.Zstd).Tar()
	for name, raw := range map[string][]byte{"plain": image, "gzip": snapshottest.Gzip(image), "zstd": snapshottest.Zstd(image)} {
		layers, err := h.Import(t.Context(), bytes.NewReader(raw), layer.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		at := t.TempDir()
		layertest.Mount(t, at, h.use(1, layers...), "")
		if content(t, at, "etc/x") != "1" || content(t, at, "etc/y") != "2" || content(t, at, "z") != "3" || len(list(t, at)) != 2 {
			t.Errorf("%s: there is %v", name, list(t, at))
		}
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: its root is %v, %v", name, info.Mode(), err)
		}
		must(t, unix.Unmount(at, 0))
	}
}

func TestHostileImagesAreNotImported(t *testing.T) {
	h := open(t)
	for name, raw := range snapshottest.HostileImages() {
		t.Run(name, func(t *testing.T) {
			if layers, err := h.Import(t.Context(), bytes.NewReader(raw), layer.Limits{}); !errors.Is(err, dormouse.ErrInvalid) {
				t.Errorf("import = %v, %v, want ErrInvalid", layers, err)
			}
			h.empty()
		})
	}
}

// empty makes sure that nothing was kept, and nothing left.
func (h *home) empty() {
	h.t.Helper()
	h.Removed()
	if names := list(h.t, filepath.Join(h.dir, "layers")); len(names) > 0 {
		h.t.Errorf("directories are %v", names)
	}
	for _, process := range list(h.t, filepath.Join(h.dir, "tmp")) {
		if left := list(h.t, filepath.Join(h.dir, "tmp", process)); len(left) > 0 {
			h.t.Errorf("left are %v", left)
		}
	}
}

func TestAnImageWithOneHostileLayerLeavesNothing(t *testing.T) {
	h := open(t)
	image := new(snapshottest.Image).Add(snapshottest.Tar("a", "1"), snapshottest.Plain).Add(snapshottest.Tar("../b", "1"), snapshottest.Plain).Tar()
	_, err := h.Import(t.Context(), bytes.NewReader(image), layer.Limits{})
	if !errors.Is(err, dormouse.ErrInvalid) || !strings.Contains(err.Error(), "layer 2") {
		t.Errorf("import = %v", err)
	}
	h.empty()
	must(t, h.blobs.(blob.Collectable).Each(t.Context(), time.Now().Add(time.Hour), func(d dormouse.Digest) error { return fmt.Errorf("%s is left", d) }))
	// How the server calls its files is not told.
	if _, err := h.Import(t.Context(), strings.NewReader("junk"), layer.Limits{}); err == nil || strings.Contains(err.Error(), h.dir) {
		t.Errorf("import = %v", err)
	}
}

func TestAnImageMayBeHeldToLess(t *testing.T) {
	h := open(t)
	image := new(snapshottest.Image).Add(snapshottest.Tar("a", strings.Repeat("x", 1000)), snapshottest.Plain).Add(snapshottest.Tar("b", "1"), snapshottest.Plain).Tar()
	for limit, want := range map[layer.Limits]error{
		{Bytes: 1001}: nil, {Bytes: 1000}: dormouse.ErrTooLarge, {Entries: 3}: nil, {Entries: 1}: dormouse.ErrTooLarge,
	} {
		if _, err := h.Import(t.Context(), bytes.NewReader(image), limit); !errors.Is(err, want) {
			t.Errorf("held to %+v: %v, want %v", limit, err, want)
		}
	}
}

func TestImagesAreImportedWithinTheLimits(t *testing.T) {
	h := open(t, func(o *snapshot.Options) { o.Limits = layer.Limits{Entries: 10, Bytes: 100_000} })
	many := new(snapshottest.Image)
	for n := range 3 {
		var files []string
		for i := range 4 {
			files = append(files, fmt.Sprintf("%d-%d", n, i), "")
		}
		many.Add(snapshottest.Tar(files...), snapshottest.Plain)
	}
	large := new(snapshottest.Image)
	for n := range 3 {
		large.Add(snapshottest.Tar(fmt.Sprint(n), strings.Repeat("x", 40_000)), snapshottest.Gzip)
	}
	padded := new(snapshottest.Image).Add(slices.Concat(snapshottest.Tar("a", "1"), make([]byte, 1<<20)), snapshottest.Gzip)
	for name, image := range map[string][]byte{
		"many entries": many.Tar(), "many bytes": large.Tar(), "much after the end": padded.Tar(),
		"a bomb": snapshottest.Gzip(make([]byte, 4<<20)), "long": bytes.Repeat(many.Tar(), 100),
	} {
		if layers, err := h.Import(t.Context(), bytes.NewReader(image), layer.Limits{}); !errors.Is(err, dormouse.ErrTooLarge) {
			t.Errorf("%s: import = %v, %v, want ErrTooLarge", name, layers, err)
		}
	}
	if _, err := h.Import(t.Context(), bytes.NewReader(new(snapshottest.Image).Add(snapshottest.Tar("a", "1"), snapshottest.Plain).Tar()), layer.Limits{}); err != nil {
		t.Error(err)
	}
}

func TestAnImportThatBreaksOffLeavesNothing(t *testing.T) {
	h := open(t)
	image := new(snapshottest.Image).Add(snapshottest.Tar("a", "1"), snapshottest.Plain).Tar()
	because := errors.New("because")
	if _, err := h.Import(t.Context(), io.MultiReader(bytes.NewReader(image[:1000]), failing{because}), layer.Limits{}); !errors.Is(err, because) || errors.Is(err, dormouse.ErrInvalid) {
		t.Errorf("import = %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(because)
	if _, err := h.Import(ctx, bytes.NewReader(image), layer.Limits{}); !errors.Is(err, because) {
		t.Errorf("import = %v", err)
	}
	h.empty()
}

func FuzzImport(f *testing.F) {
	for _, raw := range snapshottest.HostileImages() {
		f.Add(raw)
	}
	h := open(f, func(o *snapshot.Options) { o.Limits = layer.Limits{Entries: 100, Bytes: 1 << 20} })
	f.Add(new(snapshottest.Image).Add(snapshottest.Tar("d/a", "1"), snapshottest.Gzip).Add(snapshottest.Tar(".wh.d", ""), snapshottest.Plain).Tar())
	f.Add(h.export(h.keep("a", "1"), h.keep("-a", "")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		layers, err := h.Import(t.Context(), bytes.NewReader(raw), layer.Limits{})
		if err != nil {
			if !errors.Is(err, dormouse.ErrInvalid) && !errors.Is(err, dormouse.ErrTooLarge) {
				t.Errorf("it is refused with %v", err)
			}
			return
		}
		// What can be imported can be exported, and imported as it was.
		if len(layers) == 0 {
			return
		}
		var b bytes.Buffer
		must(t, h.Export(t.Context(), &b, layers, snapshot.Meta{}))
		if again, err := h.Import(t.Context(), &b, layer.Limits{}); err != nil || !slices.Equal(again, layers) {
			t.Errorf("imported are %v, %v, exported were %v", again, err, layers)
		}
	})
}
