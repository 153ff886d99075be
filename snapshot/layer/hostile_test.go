//go:build linux

package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// few is what an archive of somebody else may take.
var few = layer.Limits{Entries: 1000, Bytes: 1 << 20}

// archive is a tar of entries as they are, in the order they are.
type archive []tar.Header

const content = "content"

func (a archive) bytes(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range a {
		if h.Typeflag == tar.TypeReg && h.Size == 0 && h.Mode != 0 {
			h.Size = int64(len(content))
		}
		must(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := io.WriteString(w, content[:min(len(content), int(h.Size))])
			must(t, err)
		}
	}
	must(t, w.Flush())
	must(t, w.Close())
	return b.Bytes()
}

func dir(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func file(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
}

func symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}

func hardlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

func with(h tar.Header, records ...string) tar.Header {
	h.PAXRecords, h.Format = make(map[string]string), tar.FormatPAX
	for i := 0; i+1 < len(records); i += 2 {
		h.PAXRecords[records[i]] = records[i+1]
	}
	return h
}

// hostile are archives that no layer is packed as.
func hostile() map[string]archive {
	return map[string]archive{
		"up":                            {dir("./"), file("../x")},
		"up from inside":                {dir("./"), dir("a/"), file("a/../../x")},
		"absolute":                      {dir("./"), file("/etc/x")},
		"twice absolute":                {dir("./"), file("//etc/x")},
		"dotted":                        {dir("./"), file("./x")},
		"empty name":                    {dir("./"), file("")},
		"double slash":                  {dir("./"), dir("a/"), file("a//x")},
		"file as a directory":           {dir("./"), file("a"), file("a/x")},
		"through a link":                {dir("./"), symlink("a", "/"), file("a/x")},
		"through a link to a directory": {dir("./"), dir("d/"), symlink("a", "d"), file("a/x")},
		"a directory over a link":       {dir("./"), symlink("a", "/etc"), dir("a/")},
		"a file over a dangling link":   {dir("./"), symlink("a", "nowhere"), file("a")},
		"there twice":                   {dir("./"), file("a"), file("a")},
		"before its directory":          {dir("./"), file("a/x")},
		"link to what comes later":      {dir("./"), hardlink("a", "b"), file("b")},
		"link to itself":                {dir("./"), hardlink("a", "a")},
		"link out":                      {dir("./"), hardlink("a", "../canary")},
		"link to a host's file":         {dir("./"), hardlink("a", "/etc/passwd")},
		"link to a link":                {dir("./"), symlink("l", "/etc/passwd"), hardlink("a", "l")},
		"link to a directory":           {dir("./"), dir("d/"), hardlink("a", "d")},
		"link to what is gone":          {dir("./"), file(".wh.f"), hardlink("a", "f")},
		"memory":                        {dir("./"), {Typeflag: tar.TypeChar, Name: "mem", Devmajor: 1, Devminor: 1}},
		"disk":                          {dir("./"), {Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}},
		"overlay's own whiteout":        {dir("./"), {Typeflag: tar.TypeChar, Name: "gone"}},
		"hides nothing":                 {dir("./"), file(".wh.")},
		"hides its directory":           {dir("./"), file(".wh..")},
		"hides the one above":           {dir("./"), file(".wh...")},
		"hides what it has":             {dir("./"), file("a"), file(".wh.a")},
		"has what it hides":             {dir("./"), file(".wh.a"), file("a")},
		"hides below a file":            {dir("./"), file("a"), file("a/.wh..wh..opq")},
		"root is a file":                {file(".")},
		"root is a link":                {symlink(".", "/etc")},
		"another name of its own":       {dir("./"), with(file(".dormouse.wh.x"), "DORMOUSE.name", "../x")},
		"another name for nothing":      {dir("./"), with(file("x"), "DORMOUSE.name", "y")},
		"another name with a slash":     {dir("./"), with(file(".dormouse.wh.x"), "DORMOUSE.name", ".wh.x/")},
		"no such owner":                 {dir("./"), {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Uid: 1 << 32}},
		"a time before all":             {dir("./"), {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, ModTime: time.Unix(-1<<40, 0), Format: tar.FormatPAX}},
		"a time after all":              {dir("./"), {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, ModTime: time.Unix(1<<40, 0), Format: tar.FormatPAX}},
		"larger than allowed":           {dir("./"), with(file("a"), "DORMOUSE.size", "9223372036854775807", "DORMOUSE.pieces", "0,7")},
		"pieces that overlap":           {dir("./"), with(file("a"), "DORMOUSE.size", "100", "DORMOUSE.pieces", "0,5,3,2")},
		"pieces beyond the end":         {dir("./"), with(file("a"), "DORMOUSE.size", "5", "DORMOUSE.pieces", "0,7")},
		"pieces that are no numbers":    {dir("./"), with(file("a"), "DORMOUSE.size", "100", "DORMOUSE.pieces", "0,x")},
		"half a piece":                  {dir("./"), with(file("a"), "DORMOUSE.size", "100", "DORMOUSE.pieces", "0")},
		"no size":                       {dir("./"), with(file("a"), "DORMOUSE.size", "-1")},
		"much attached":                 {dir("./"), with(file("a"), "SCHILY.xattr.user.x", strings.Repeat("x", 100_000))},
		"a long name":                   {dir("./"), file(strings.Repeat("x", 5000))},
		"a deep name":                   deep(300),
		"too many":                      many(2000),
	}
}

func deep(n int) archive {
	a := archive{dir("./")}
	for i := range n {
		a = append(a, dir(strings.Repeat("d/", i+1)))
	}
	return a
}

func many(n int) archive {
	a := archive{dir("./")}
	for i := range n {
		a = append(a, file(fmt.Sprintf("f%d", i)))
	}
	return a
}

func TestHostileArchivesAreRefused(t *testing.T) {
	asRoot(t)
	for name, a := range hostile() {
		t.Run(name, func(t *testing.T) {
			if err := unpackSafely(t, a.bytes(t)); err == nil {
				t.Error("it was unpacked")
			}
		})
	}
}

// What is only unusual is unpacked, without what it may not have.
func TestUnusualArchivesAreTamed(t *testing.T) {
	asRoot(t)
	for name, c := range map[string]struct {
		archive
		check func(t *testing.T, dir string)
	}{
		"a pipe": {archive{dir("./"), {Typeflag: tar.TypeFifo, Name: "p", Mode: 0o600}}, nil},
		"attributes of the kernel": {
			archive{dir("./"), with(file("a"), "SCHILY.xattr.security.capability", "x", "SCHILY.xattr.trusted.overlay.opaque", "y", "SCHILY.xattr.user.mine", "m")},
			func(t *testing.T, dir string) {
				names := make([]byte, 1000)
				n, err := unix.Llistxattr(filepath.Join(dir, "a"), names)
				must(t, err)
				if got := string(names[:n]); got != "user.mine\x00" {
					t.Errorf("it has %q", got)
				}
			},
		},
		"odd names":              {archive{dir("./"), file("new\nline"), file("\x1b[2J"), file("a b")}, nil},
		"a directory for nobody": {archive{dir("./"), {Typeflag: tar.TypeDir, Name: "d/"}, file("d/x")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			must(t, layer.Unpack(t.Context(), bytes.NewReader(c.bytes(t)), few, at))
			if c.check != nil {
				c.check(t, at)
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
	must(t, os.WriteFile(canary, []byte("tweet"), 0o600))
	must(t, os.Mkdir(target, 0o700))
	var before, after unix.Stat_t
	must(t, unix.Stat(canary, &before))
	failed := unpack(t, raw, target)
	must(t, unix.Stat(canary, &after))
	before.Atim, after.Atim = unix.Timespec{}, unix.Timespec{}
	if before != after {
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
	for _, a := range hostile() {
		f.Add(a.bytes(f))
	}
	f.Add(archive{dir("./"), file("a"), hardlink("b", "a"), file(".wh.c"), dir("d/"), file("d/.wh..wh..opq"), with(file("s"), "DORMOUSE.size", "5000000", "DORMOUSE.pieces", "4096,7")}.bytes(f))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := unpackSafely(t, raw); err != nil {
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
	long := at
	for range 300 {
		long = filepath.Join(long, "d")
	}
	must(t, os.MkdirAll(long, 0o700))
	found, skipped, err := layer.Scan(at, plenty)
	must(t, err)
	if len(skipped) != 2 || skipped[1].Path != "null" || !strings.HasPrefix(skipped[0].Path, "d/d/") {
		t.Errorf("skipped are %v", skipped)
	}
	if len(found) != 1+256+1 {
		t.Errorf("found are %d entries", len(found))
	}
	if _, _, err := layer.Scan(at, layer.Limits{Entries: 10}); !errors.Is(err, layer.ErrTooMany) {
		t.Errorf("too many are %v", err)
	}
}
