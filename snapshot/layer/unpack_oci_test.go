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

// What images have in them is unpacked, as the layer that it means.
func TestLayersOfAnyImageAreUnpacked(t *testing.T) {
	asRoot(t)
	private := func(name string) tar.Header {
		h := layertest.Dir(name)
		h.Mode = 0o700
		return h
	}
	device := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeChar, Name: name, Devmajor: 1, Devminor: 3}
	}
	for name, c := range map[string]struct {
		layertest.Archive
		same layertest.Archive // as it would have been packed
		left int
	}{
		"no root":                    {layertest.Archive{layertest.File("a")}, layertest.Archive{layertest.Dir("./"), layertest.File("a")}, 0},
		"a root of its own":          {layertest.Archive{private("./"), layertest.File("a")}, layertest.Archive{private("./"), layertest.File("a")}, 0},
		"dotted":                     {layertest.Archive{layertest.File("./a"), layertest.Dir("./d/"), layertest.File("./d/b")}, layertest.Archive{layertest.Dir("./"), layertest.File("a"), layertest.Dir("d/"), layertest.File("d/b")}, 0},
		"absolute":                   {layertest.Archive{layertest.File("/a"), layertest.Hardlink("/b", "/a")}, layertest.Archive{layertest.Dir("./"), layertest.File("a"), layertest.Hardlink("b", "a")}, 0},
		"no directory":               {layertest.Archive{layertest.File("d/e/b")}, layertest.Archive{layertest.Dir("./"), layertest.Dir("d/"), layertest.Dir("d/e/"), layertest.File("d/e/b")}, 0},
		"a directory after all":      {layertest.Archive{layertest.File("d/b"), private("d/")}, layertest.Archive{layertest.Dir("./"), private("d/"), layertest.File("d/b")}, 0},
		"a directory twice":          {layertest.Archive{layertest.Dir("d/"), private("d/")}, layertest.Archive{layertest.Dir("./"), private("d/")}, 0},
		"in no order":                {layertest.Archive{layertest.File("b"), layertest.File("a")}, layertest.Archive{layertest.Dir("./"), layertest.File("a"), layertest.File("b")}, 0},
		"gone":                       {layertest.Archive{layertest.File("d/.wh.x")}, layertest.Archive{layertest.Dir("./"), layertest.Dir("d/"), layertest.File("d/.wh.x")}, 0},
		"hiding before it is there":  {layertest.Archive{layertest.File("d/.wh..wh..opq"), layertest.File("d/a"), layertest.Dir("d/")}, layertest.Archive{layertest.Dir("./"), layertest.Dir("d/"), layertest.File("d/.wh..wh..opq"), layertest.File("d/a")}, 0},
		"devices and others' notes":  {layertest.Archive{device("null"), layertest.File(".wh..wh.plnk"), layertest.File("a")}, layertest.Archive{layertest.Dir("./"), layertest.File("a")}, 2},
		"a header for all":           {layertest.Archive{{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, layertest.File("a")}, layertest.Archive{layertest.Dir("./"), layertest.File("a")}, 0},
		"ours":                       {layertest.Archive{layertest.Dir("./"), layertest.With(layertest.File(".dormouse.wh.x"), "DORMOUSE.name", ".wh.x")}, layertest.Archive{layertest.Dir("./"), layertest.With(layertest.File(".dormouse.wh.x"), "DORMOUSE.name", ".wh.x")}, 0},
		"a device called a whiteout": {layertest.Archive{layertest.Dir("d/"), device("d/.wh.x"), device("d/.wh..wh..opq"), layertest.File("a")}, layertest.Archive{layertest.Dir("./"), layertest.Dir("d/"), layertest.File("a")}, 2},
		"a device of no name":        {layertest.Archive{device("../null"), device(".wh."), device(strings.Repeat("x/", 5000) + "x"), layertest.File("a")}, layertest.Archive{layertest.Dir("./"), layertest.File("a")}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			adopted, unpacked := t.TempDir(), t.TempDir()
			left, err := layer.UnpackOCI(t.Context(), bytes.NewReader(c.Bytes()), few, adopted)
			must(t, err)
			must(t, layer.Unpack(t.Context(), bytes.NewReader(c.same.Bytes()), few, unpacked))
			if got, want := repack(t, adopted), repack(t, unpacked); !bytes.Equal(got, want) || left != c.left {
				t.Errorf("%d were left, and it is\n%s", left, layertest.Difference(layertest.Describe(t, unpacked), layertest.Describe(t, adopted)))
			}
		})
	}
}

// A hard link to a name outside is refused, also where nothing would be made of it.
func TestHardLinksOutOfALayerAreRefused(t *testing.T) {
	asRoot(t)
	for _, name := range []string{"a", ".wh..wh.plnk", ".wh.x", ".wh..wh..opq"} {
		raw := layertest.Archive{layertest.Hardlink(name, "../canary")}.Bytes()
		if err := unpackOCI(t, raw, t.TempDir()); !isTyped(err) {
			t.Errorf("%s: adopt = %v", name, err)
		}
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

func TestHostileLayersOfImagesAreRefused(t *testing.T) {
	asRoot(t)
	for name, a := range layertest.Hostile("/etc") {
		t.Run(name, func(t *testing.T) {
			err := safely(t, a.Bytes(), unpackOCI)
			if (err == nil) != lenient[name] || err != nil && !isTyped(err) {
				t.Errorf("adopt = %v", err)
			}
		})
	}
	for name, raw := range layertest.Malformed("/etc") {
		t.Run(name, func(t *testing.T) {
			if err := safely(t, raw, unpackOCI); !isTyped(err) {
				t.Errorf("adopt = %v", err)
			}
		})
	}
}

func unpackOCI(t testing.TB, raw []byte, to string) error {
	t.Helper()
	_, err := layer.UnpackOCI(t.Context(), bytes.NewReader(raw), few, to)
	return err
}

func FuzzAdopt(f *testing.F) {
	asRoot(f)
	for _, a := range layertest.Hostile("/etc") {
		f.Add(a.Bytes())
	}
	for _, raw := range layertest.Malformed("/etc") {
		f.Add(raw[:min(len(raw), 1<<16)])
	}
	f.Add(layertest.Global())
	f.Add(layertest.Archive{layertest.File("d/b"), layertest.Dir("d/"), layertest.Hardlink("/c", "./d/b"), layertest.File("e/.wh..wh..opq"), layertest.File(".wh.x"), layertest.File(".wh..wh.plnk")}.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := safely(t, raw, unpackOCI); err != nil {
			if !isTyped(err) {
				t.Errorf("it is refused with %v", err)
			}
			return
		}
		// What can be unpacked is a layer like any other.
		one, two := t.TempDir(), t.TempDir()
		must(t, unpackOCI(t, raw, one))
		first := repack(t, one)
		must(t, layer.Unpack(t.Context(), bytes.NewReader(first), few, two))
		if !bytes.Equal(first, repack(t, two)) {
			t.Error("it is packed in two ways")
		}
	})
}

// Others know nothing of how we leave holes out.
func TestSparseFilesAreExpanded(t *testing.T) {
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
	spread, err := layer.ExpandSparse(t.Context(), &ours, plenty, &theirs)
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
	if _, err := layer.ExpandSparse(t.Context(), bytes.NewReader(theirs.Bytes()), few, &bytes.Buffer{}); !errors.Is(err, layer.ErrTooBig) {
		t.Errorf("spread = %v, want ErrTooBig", err)
	}
}
