//go:build linux

package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// deepTree makes directories that lie in each other, deeper than any path that a
// kernel takes is long, and calls at with each of the given depths.
func deepTree(t *testing.T, name string, depth int, at func(dir int, depth int)) beneath.Tree {
	t.Helper()
	tree := beneath.At(filepath.Join(t.TempDir(), "tree"))
	t.Cleanup(func() { must(t, tree.Remove()) })
	must(t, unix.Mkdir(tree.Host(), 0o755))
	dir, err := unix.Open(tree.Host(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for n := range depth {
		at(dir, n)
		must(t, unix.Mkdirat(dir, name, 0o755))
		below, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(dir))
		dir = below
	}
	at(dir, depth)
	must(t, unix.Close(dir))
	return tree
}

// put makes a file in an open directory.
func put(t *testing.T, dir int, name, text string) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o640)
	must(t, err)
	_, err = unix.Write(fd, []byte(text))
	must(t, errors.Join(err, unix.Close(fd)))
}

// fewDescriptors has the process make do with a few more descriptors than it has.
func fewDescriptors(t *testing.T, most uint64) {
	t.Helper()
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: was.Max}))
	t.Cleanup(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
}

// However deep something lies and however long its path is, a file system that takes it
// has it in its snapshots, and it costs no descriptors.
func TestWhatAFileSystemTakesALayerTakes(t *testing.T) {
	asRoot(t)
	const depth, name = 320, "a-directory-of-it"
	from := deepTree(t, name, depth, func(dir, n int) {
		if n != 0 && n != 100 && n != depth {
			return
		}
		put(t, dir, "file", fmt.Sprint("at ", n))
		must(t, unix.Linkat(dir, "file", dir, "twin", 0))
		must(t, unix.Symlinkat("file", dir, "link"))
		must(t, unix.Mkfifoat(dir, "pipe", 0o600))
		must(t, unix.Mkdirat(dir, "z", 0o700)) // looked at after what lies deepest
	})
	bottom := strings.Repeat(name+"/", depth)
	fewDescriptors(t, 200)

	settle()
	one := t.TempDir()
	t.Cleanup(func() { must(t, beneath.At(one).Remove()) })
	first := layer.NewCapture(from, one, nil, nil, plenty)
	pass(t, first)
	if left := first.Skipped(); len(left) > 0 {
		t.Fatalf("%d are left out, such as %.100q", len(left), left[0].Path)
	}
	if entries, _ := first.Written(); entries != 1+depth+3*5 {
		t.Errorf("%d entries were written", entries)
	}
	before, err := layer.DecodeIndex(first.Index().Encode(), plenty)
	must(t, err)

	var packed, again bytes.Buffer
	must(t, layer.Pack(t.Context(), one, plenty, &packed))
	two := t.TempDir()
	t.Cleanup(func() { must(t, beneath.At(two).Remove()) })
	must(t, layer.Unpack(t.Context(), bytes.NewReader(packed.Bytes()), plenty, two))
	must(t, layer.BreakHardLinks(t.Context(), two, plenty))
	must(t, layer.Pack(t.Context(), one, plenty, &again))
	if !bytes.Equal(packed.Bytes(), again.Bytes()) {
		t.Error("it is packed in two ways")
	}
	adopted := t.TempDir()
	t.Cleanup(func() { must(t, beneath.At(adopted).Remove()) })
	_, err = layer.UnpackOCI(t.Context(), bytes.NewReader(packed.Bytes()), plenty, adopted)
	must(t, err)
	same(t, []string{two}, []string{adopted})

	top, err := from.Open()
	must(t, err)
	dir, err := top.Dir(strings.TrimSuffix(bottom, "/"))
	must(t, err)
	must(t, unix.Unlinkat(int(dir.Fd()), "file", 0))
	put(t, int(dir.Fd()), "new", "written later")
	must(t, errors.Join(dir.Close(), top.Close()))
	settle()
	three := t.TempDir()
	t.Cleanup(func() { must(t, beneath.At(three).Remove()) })
	second := layer.NewCapture(from, three, before, nil, plenty)
	pass(t, second)
	got := make(map[string]layer.Kind)
	must(t, layer.Compare(t.Context(), []string{two}, []string{two, three}, plenty, func(c layer.Change) { got[c.Path] = c.Now.Kind }))
	if len(got) != 2 || got[bottom+"file"] != 0 || got[bottom+"new"] != layer.File {
		t.Errorf("%d names differ", len(got))
	}
	merged := t.TempDir()
	t.Cleanup(func() { must(t, beneath.At(merged).Remove()) })
	must(t, layer.Merge(t.Context(), []string{two, three}, plenty, merged))
	same(t, []string{two, three}, []string{merged})
}

// same fails unless two chains of layers show the same.
func same(t *testing.T, one, two []string) {
	t.Helper()
	must(t, layer.Compare(t.Context(), one, two, plenty, func(c layer.Change) { t.Errorf("%.100q is not the same", c.Path) }))
}

// Directories nested without end are limited by the total length of all paths: they
// must not cost the server more than that.
func TestDepthIsBoundedByWhatAllPathsAre(t *testing.T) {
	const depth = 740
	name := strings.Repeat("d", 250)
	tree := deepTree(t, name, depth, func(int, int) {})
	if _, _, err := layer.Scan(t.Context(), tree.Host(), plenty); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("scan of 69 MB of paths: %v", err)
	}
	in, out := io.Pipe()
	go func() {
		w := tar.NewWriter(out)
		write := func(name string) error {
			h := layertest.Dir(name)
			return w.WriteHeader(&h)
		}
		err := write("./")
		for n := 1; err == nil && n <= depth; n++ {
			err = write(strings.Repeat(name+"/", n))
		}
		_ = out.CloseWithError(err)
	}()
	to := filepath.Join(t.TempDir(), "to")
	must(t, unix.Mkdir(to, 0o700))
	t.Cleanup(func() { must(t, beneath.At(to).Remove()) })
	if err := layer.Unpack(t.Context(), in, plenty, to); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("unpack 69 MB of paths: %v", err)
	}
	_ = in.Close()
}
