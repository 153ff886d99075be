//go:build linux

package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// What images have in them is adopted, as the layer that it means.
func TestAnyImagesLayersAreAdopted(t *testing.T) {
	asRoot(t)
	private := func(name string) tar.Header {
		h := dir(name)
		h.Mode = 0o700
		return h
	}
	for name, c := range map[string]struct {
		archive
		same archive // as it would have been packed
		left int
	}{
		"no root":                   {archive{file("a")}, archive{dir("./"), file("a")}, 0},
		"a root of its own":         {archive{private("./"), file("a")}, archive{private("./"), file("a")}, 0},
		"dotted":                    {archive{file("./a"), dir("./d/"), file("./d/b")}, archive{dir("./"), file("a"), dir("d/"), file("d/b")}, 0},
		"absolute":                  {archive{file("/a"), hardlink("/b", "/a")}, archive{dir("./"), file("a"), hardlink("b", "a")}, 0},
		"no directory":              {archive{file("d/e/b")}, archive{dir("./"), dir("d/"), dir("d/e/"), file("d/e/b")}, 0},
		"a directory after all":     {archive{file("d/b"), private("d/")}, archive{dir("./"), private("d/"), file("d/b")}, 0},
		"a directory twice":         {archive{dir("d/"), private("d/")}, archive{dir("./"), private("d/")}, 0},
		"in no order":               {archive{file("b"), file("a")}, archive{dir("./"), file("a"), file("b")}, 0},
		"gone":                      {archive{file("d/.wh.x")}, archive{dir("./"), dir("d/"), file("d/.wh.x")}, 0},
		"hiding before it is there": {archive{file("d/.wh..wh..opq"), file("d/a"), dir("d/")}, archive{dir("./"), dir("d/"), file("d/.wh..wh..opq"), file("d/a")}, 0},
		"devices and others' notes": {archive{{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}, file(".wh..wh.plnk"), file("a")}, archive{dir("./"), file("a")}, 2},
		"a header for all":          {archive{{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, file("a")}, archive{dir("./"), file("a")}, 0},
		"ours":                      {archive{dir("./"), with(file(".dormouse.wh.x"), "DORMOUSE.name", ".wh.x")}, archive{dir("./"), with(file(".dormouse.wh.x"), "DORMOUSE.name", ".wh.x")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			adopted, unpacked := t.TempDir(), t.TempDir()
			left, err := layer.Adopt(t.Context(), bytes.NewReader(c.bytes(t)), few, adopted)
			must(t, err)
			must(t, layer.Unpack(t.Context(), bytes.NewReader(c.same.bytes(t)), few, unpacked))
			if got, want := repack(t, adopted), repack(t, unpacked); !bytes.Equal(got, want) || left != c.left {
				t.Errorf("%d were left, and it is\n%s", left, layertest.Difference(layertest.Describe(t, unpacked), layertest.Describe(t, adopted)))
			}
		})
	}
}

func repack(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, layer.Pack(t.Context(), dir, few, &b))
	return b.Bytes()
}

// lenient is what a hostile archive may be to Adopt and not to Unpack.
var lenient = map[string]bool{
	"absolute": true, "twice absolute": true, "dotted": true, "double slash": true, "before its directory": true, "memory": true, "disk": true,
	"overlay's own whiteout": true,
}

func TestHostileLayersAreNotAdopted(t *testing.T) {
	asRoot(t)
	for name, a := range hostile() {
		t.Run(name, func(t *testing.T) {
			err := safely(t, a.bytes(t), adopt)
			if (err == nil) != lenient[name] {
				t.Errorf("adopt = %v", err)
			}
		})
	}
}

func adopt(t testing.TB, raw []byte, to string) error {
	t.Helper()
	_, err := layer.Adopt(t.Context(), bytes.NewReader(raw), few, to)
	return err
}

func FuzzAdopt(f *testing.F) {
	asRoot(f)
	for _, a := range hostile() {
		f.Add(a.bytes(f))
	}
	f.Add(archive{file("d/b"), dir("d/"), hardlink("/c", "./d/b"), file("e/.wh..wh..opq"), file(".wh.x"), file(".wh..wh.plnk")}.bytes(f))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if safely(t, raw, adopt) != nil {
			return
		}
		// What can be adopted is a layer like any other.
		one, two := t.TempDir(), t.TempDir()
		must(t, adopt(t, raw, one))
		first := repack(t, one)
		must(t, layer.Unpack(t.Context(), bytes.NewReader(first), few, two))
		if !bytes.Equal(first, repack(t, two)) {
			t.Error("it is packed in two ways")
		}
	})
}

// Others know nothing of how we leave holes out.
func TestHolesAreSpreadForOthers(t *testing.T) {
	asRoot(t)
	at := t.TempDir()
	f, err := os.Create(filepath.Join(at, "sparse"))
	must(t, err)
	_, err = f.WriteAt([]byte("middle"), 3<<20)
	must(t, err)
	must(t, f.Truncate(5<<20))
	must(t, f.Close())
	must(t, os.WriteFile(filepath.Join(at, ".wh.x"), []byte("x"), 0o600))
	must(t, unix.Setxattr(filepath.Join(at, "sparse"), "user.x", []byte("y"), 0))
	var ours, theirs bytes.Buffer
	must(t, layer.Pack(t.Context(), at, plenty, &ours))
	if ours.Len() > 1<<20 {
		t.Fatalf("packed it has %d bytes", ours.Len())
	}
	spread, err := layer.Spread(t.Context(), &ours, plenty, &theirs)
	must(t, err)
	if !spread {
		t.Error("nothing was spread")
	}
	want := strings.Repeat("\x00", 3<<20) + "middle" + strings.Repeat("\x00", 2<<20-6)
	found := false
	for in := tar.NewReader(bytes.NewReader(theirs.Bytes())); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		if h.Name == "sparse" {
			var b bytes.Buffer
			_, err := b.ReadFrom(in)
			must(t, err)
			found = b.String() == want && h.PAXRecords["SCHILY.xattr.user.x"] == "y"
		}
	}
	if !found {
		t.Error("others read something else")
	}
	to := t.TempDir()
	must(t, layer.Unpack(t.Context(), bytes.NewReader(theirs.Bytes()), plenty, to))
	if was, is := layertest.Describe(t, at), layertest.Describe(t, to); was != is {
		t.Errorf("it is not what it was:\n%s", layertest.Difference(was, is))
	}
	if _, err := layer.Spread(t.Context(), bytes.NewReader(theirs.Bytes()), few, &bytes.Buffer{}); !errors.Is(err, layer.ErrTooBig) {
		t.Errorf("spread = %v, want ErrTooBig", err)
	}
}
