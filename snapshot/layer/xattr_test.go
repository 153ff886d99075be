//go:build linux

package layer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// setXattrs attaches names with values of some length to a file or a directory. It ends at
// the first that does not fit.
func setXattrs(t *testing.T, path string, names []string, lengths ...int) {
	t.Helper()
	for i, name := range names {
		if err := unix.Setxattr(path, "user."+name, bytes.Repeat([]byte{byte(i)}, lengths[i]), 0); err != nil {
			t.Skipf("this file system keeps less: %v", err)
		}
	}
}

// Whatever can be attached to a file can be captured, packed and unpacked: names that no
// archive has, and as much as fits in only one order.
func TestWhateverIsAttachedIsCarried(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"file", "dir/"} {
		files(t, dir, name, "text", "empty"+name, "")
		at := filepath.Join(dir, name)
		setXattrs(t, at, []string{"a", "b=c", "=", "\n 7 x=y\n"}, 0, 3, 70, 5)
		at = filepath.Join(dir, "empty"+name)
		setXattrs(t, at, strings.Fields("A b large z100 z20 z5"), 56, 20, 3800, 100, 20, 5)
	}
	want := attached(t, dir)
	for range 20 { // nothing of it is by chance
		taken, unpacked := t.TempDir(), t.TempDir()
		_, err := layer.NewCapture(beneath.At(dir), taken, nil, nil, plenty).Pass(t.Context(), nil)
		must(t, err)
		var packed bytes.Buffer
		must(t, layer.Pack(t.Context(), taken, plenty, &packed))
		must(t, layer.Unpack(t.Context(), &packed, plenty, unpacked))
		if got := attached(t, unpacked); got != want {
			t.Fatalf("attached are\n%q, want\n%q", got, want)
		}
	}
}

// attached is all that is attached to what is in a directory.
func attached(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names, value := make([]byte, 4096), make([]byte, 8192)
		n, err := unix.Listxattr(filepath.Join(dir, e.Name()), names)
		must(t, err)
		for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
			n, err := unix.Getxattr(filepath.Join(dir, e.Name()), name, value)
			must(t, err)
			all.WriteString(e.Name() + " " + name + " " + string(value[:n]) + "\n")
		}
	}
	return all.String()
}

// A directory that hides what is below has one attribute more, and all of them together
// may fit in one order alone.
func TestAFullOpaqueDirectoryIsCarried(t *testing.T) {
	asRoot(t)
	for one := 4; one <= 24; one += 4 {
		for two := 4; two <= 24; two += 4 {
			dir, unpacked, taken := t.TempDir(), t.TempDir(), t.TempDir()
			at := filepath.Join(dir, "d")
			must(t, os.Mkdir(at, 0o755))
			must(t, unix.Setxattr(at, "trusted.overlay.opaque", []byte("y"), 0))
			setXattrs(t, at, []string{"y", "x"}, one, two)
			for large := 4096; large > 3000 && unix.Setxattr(at, "user.z", make([]byte, large), 0) != nil; {
				large -= 4
			}
			var packed bytes.Buffer
			must(t, layer.Pack(t.Context(), dir, plenty, &packed))
			must(t, layer.Unpack(t.Context(), &packed, plenty, unpacked))
			_, err := layer.NewCapture(beneath.At(dir), taken, nil, nil, plenty).Pass(t.Context(), nil)
			must(t, err)
			for _, got := range []string{unpacked, taken} {
				is, was := strings.Split(attached(t, got), "\n"), strings.Split(attached(t, dir), "\n")
				slices.Sort(is)
				slices.Sort(was)
				if !slices.Equal(is, was) {
					t.Errorf("with %d and %d bytes attached are %q", one, two, is)
				}
			}
		}
	}
}
