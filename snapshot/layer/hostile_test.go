//go:build linux

package layer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
	"github.com/dormouse-run/dormouse/snapshot/layer/layertest"
)

// few is the limit for an archive of an attacker.
var few = layer.Limits{Entries: 1000, Bytes: 1 << 20}

func TestHostileArchivesAreRefused(t *testing.T) {
	asRoot(t)
	for name, a := range layertest.Hostile("/etc") {
		t.Run(name, func(t *testing.T) {
			if err := unpackSafely(t, a.Bytes()); !isTyped(err) {
				t.Errorf("unpack = %v", err)
			}
		})
	}
	for name, raw := range layertest.Malformed("/etc") {
		t.Run(name, func(t *testing.T) {
			if err := unpackSafely(t, raw); !isTyped(err) {
				t.Errorf("unpack = %v", err)
			}
		})
	}
}

// isTyped reports whether an error says that an archive is to blame.
func isTyped(err error) bool {
	return errors.Is(err, layer.ErrMalformed) || errors.Is(err, layer.ErrTooBig) || errors.Is(err, layer.ErrTooMany)
}

// Archives that do not come, or come where they cannot be put, are not to blame.
func TestOnlyArchivesAreBlamed(t *testing.T) {
	asRoot(t)
	raw := layertest.Archive{layertest.Dir("./"), layertest.File("a")}.Bytes()
	because := errors.New("because")
	broken := func() io.Reader { return io.MultiReader(bytes.NewReader(raw[:1000]), iotest.ErrReader(because)) }
	if err := layer.Unpack(t.Context(), broken(), few, t.TempDir()); !errors.Is(err, because) || isTyped(err) {
		t.Errorf("unpack what does not come = %v", err)
	}
	if _, err := layer.UnpackOCI(t.Context(), broken(), few, t.TempDir()); !errors.Is(err, because) || isTyped(err) {
		t.Errorf("adopt what does not come = %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(because)
	if err := layer.Unpack(ctx, bytes.NewReader(raw), few, t.TempDir()); !errors.Is(err, because) || isTyped(err) {
		t.Errorf("unpack in vain = %v", err)
	}
	small := t.TempDir()
	must(t, unix.Mount("none", small, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { must(t, unix.Unmount(small, 0)) })
	large := layertest.Archive{layertest.Dir("./")}
	for n := range 100 {
		large = append(large, layertest.File(fmt.Sprint(n)))
	}
	if err := layer.Unpack(t.Context(), bytes.NewReader(large.Bytes()), few, small); !errors.Is(err, unix.ENOSPC) || isTyped(err) {
		t.Errorf("unpack where there is no room = %v", err)
	}
}

// Where that much cannot be attached, the disk is not to blame either.
func TestWhatCannotBeAttachedIsTooMuch(t *testing.T) {
	asRoot(t)
	if err := unpackSafely(t, layertest.Attributes(10, 60_000)); err != nil && !errors.Is(err, layer.ErrTooBig) {
		t.Errorf("unpack = %v", err)
	}
}

// What is only unusual is unpacked, without what it may not have.
func TestUnusualArchivesAreTamed(t *testing.T) {
	asRoot(t)
	for name, raw := range layertest.Unusual() {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			must(t, layer.Unpack(t.Context(), bytes.NewReader(raw), few, at))
			must(t, filepath.WalkDir(at, func(path string, _ fs.DirEntry, err error) error {
				must(t, err)
				names := make([]byte, 1000)
				n, err := unix.Llistxattr(path, names)
				must(t, err)
				if got := string(names[:n]); got != "" && got != "user.mine\x00" {
					t.Errorf("%s has %q", path, got)
				}
				return nil
			}))
			if err := safely(t, raw, unpackOCI); err != nil {
				t.Errorf("adopt = %v", err)
			}
		})
	}
}

func unpackSafely(t testing.TB, raw []byte) error {
	t.Helper()
	return safely(t, raw, func(t testing.TB, raw []byte, to string) error {
		return layer.Unpack(t.Context(), bytes.NewReader(raw), few, to)
	})
}

// safely unpacks, and fails the test if anything happened elsewhere.
func safely(t testing.TB, raw []byte, unpack func(t testing.TB, raw []byte, to string) error) error {
	t.Helper()
	home := t.TempDir()
	canary, target := filepath.Join(home, "canary"), filepath.Join(home, "target")
	must(t, os.Mkdir(canary, 0o700))
	must(t, os.WriteFile(filepath.Join(canary, "passwd"), []byte("tweet"), 0o600))
	must(t, os.Mkdir(target, 0o700))
	look := func() (at [2]unix.Stat_t) {
		for i, name := range []string{canary, filepath.Join(canary, "passwd")} {
			must(t, unix.Stat(name, &at[i]))
			at[i].Atim = unix.Timespec{}
		}
		return at
	}
	before := look()
	failed := unpack(t, raw, target)
	if before != look() {
		t.Errorf("the canary was touched")
	}
	names, err := os.ReadDir(home)
	must(t, err)
	if len(names) != 2 {
		t.Errorf("there is more than there was: %v", names)
	}
	return failed
}

func FuzzUnpack(f *testing.F) {
	asRoot(f)
	for _, a := range layertest.Hostile("/etc") {
		f.Add(a.Bytes())
	}
	for _, raw := range layertest.Malformed("/etc") {
		f.Add(raw[:min(len(raw), 1<<16)])
	}
	f.Add(layertest.Global())
	for _, raw := range layertest.Unusual() {
		f.Add(raw)
	}
	f.Add(layertest.Archive{layertest.Dir("./"), layertest.File("a"), layertest.Hardlink("b", "a"), layertest.File(".wh.c"), layertest.Dir("d/"), layertest.File("d/.wh..wh..opq"), layertest.With(layertest.File("s"), "DORMOUSE.size", "5000000", "DORMOUSE.pieces", "4096,7")}.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := unpackSafely(t, raw); err != nil {
			if !isTyped(err) {
				t.Errorf("it is refused with %v", err)
			}
			return
		}
		// What can be unpacked is packed as one thing only.
		one, two := t.TempDir(), t.TempDir()
		must(t, layer.Unpack(t.Context(), bytes.NewReader(raw), few, one))
		var first, second bytes.Buffer
		must(t, layer.Pack(t.Context(), one, few, &first))
		must(t, layer.Unpack(t.Context(), bytes.NewReader(first.Bytes()), few, two))
		must(t, layer.Pack(t.Context(), two, few, &second))
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Error("it is packed in two ways")
		}
	})
}

func TestWhatNoLayerCarriesIsSaid(t *testing.T) {
	asRoot(t)
	at := t.TempDir()
	must(t, unix.Mknod(filepath.Join(at, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, unix.Mkfifo(filepath.Join(at, "pipe"), 0o600))
	for _, name := range []string{"mounted", "mounted/below"} {
		must(t, os.Mkdir(filepath.Join(at, name), 0o700))
	}
	must(t, unix.Mount(at, filepath.Join(at, "mounted/below"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(filepath.Join(at, "mounted/below"), 0)) })
	found, skipped, err := layer.Scan(t.Context(), at, plenty)
	must(t, err)
	if len(skipped) != 2 || skipped[0].Path != "mounted/below" || skipped[0].Kind != layer.Unsupported || skipped[1].Path != "null" {
		t.Errorf("skipped are %v", skipped)
	}
	if len(found) != 1+1+1 {
		t.Errorf("found are %d entries", len(found))
	}
	if _, _, err := layer.Scan(t.Context(), at, layer.Limits{Entries: 3}); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("too many are %v", err)
	}
}

func TestNamesAndPathsAreBounded(t *testing.T) {
	sockets := t.TempDir()
	for i := range 20 {
		if err := unix.Mknod(filepath.Join(sockets, fmt.Sprint(i)), unix.S_IFSOCK|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := layer.Scan(t.Context(), sockets, layer.Limits{Entries: 10, Bytes: 1 << 20}); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("twenty that no layer carries, ten allowed: %v", err)
	}
	// A file with a long path and many names: it takes no space, and much to remember.
	deep := filepath.Join(t.TempDir(), "long")
	at := deep
	for range 14 {
		at = filepath.Join(at, strings.Repeat("d", 250))
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 20000 {
		if err := os.Symlink("x", filepath.Join(at, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := layer.Scan(t.Context(), deep, layer.Limits{Entries: 1 << 20, Bytes: 1 << 40}); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("70 MB of paths: %v", err)
	}
}

// What was packed within the limits is unpacked within them: a directory that hides what
// is below is two headers.
func TestOpaqueDirectoriesCountOnce(t *testing.T) {
	dir, l := t.TempDir(), layer.Limits{Entries: 11, Bytes: 1 << 20}
	for i := range l.Entries - 1 {
		at := filepath.Join(dir, fmt.Sprint(i))
		must(t, os.Mkdir(at, 0o700))
		if err := unix.Setxattr(at, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			t.Skip("needs root: ", err)
		}
	}
	var packed bytes.Buffer
	must(t, layer.Pack(t.Context(), dir, l, &packed))
	must(t, layer.Unpack(t.Context(), &packed, l, t.TempDir()))
}
