package runner

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestTarMayHaveOnlySoManyEntries(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"a", "b", "c"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for limit, fails := range map[int]bool{2: true, 3: false} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if s, err := unpackTree(root, bytes.NewReader(b.Bytes()), limit); (err != nil) != fails {
			t.Errorf("at most %d: %+v, %v", limit, s, err)
		}
		_ = root.Close()
	}
}

func FuzzUntar(f *testing.F) {
	for _, h := range []tar.Header{
		{Name: "a/b", Typeflag: tar.TypeReg, Size: 1},
		{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "../canary"},
		{Name: "../canary/song", Typeflag: tar.TypeReg, Size: 1},
		{Name: "b", Typeflag: tar.TypeLink, Linkname: "../canary/song"},
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: "x", Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{"GNU.sparse.major": "1"}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: "way", Typeflag: tar.TypeSymlink, Linkname: "../canary"}); err != nil {
			f.Fatal(err)
		}
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		_, _ = io.WriteString(w, "x"[:h.Size])
		_ = w.Close()
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		for _, name := range []string{"in", "canary"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		song := filepath.Join(dir, "canary/song")
		if err := os.WriteFile(song, []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(filepath.Join(dir, "in"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		s, err := unpackTree(root, bytes.NewReader(b), 100)
		if s.Files > 100 || s.Bytes > int64(len(b)) {
			t.Errorf("of %d bytes: %+v, %v", len(b), s, err)
		}
		if got, err := os.ReadFile(song); err != nil || string(got) != "alive" {
			t.Errorf("the canary sings %q, %v", got, err)
		}
		for name, want := range map[string]int{dir: 2, filepath.Dir(song): 1} {
			if all, err := os.ReadDir(name); err != nil || len(all) != want {
				t.Errorf("%s holds %v, %v", name, all, err)
			}
		}
		_ = filepath.Walk(filepath.Join(dir, "in"), func(name string, at os.FileInfo, err error) error {
			if err == nil && at.IsDir() {
				_ = os.Chmod(name, 0o700) // so that it can be removed
			}
			return nil
		})
	})
}

func FuzzTreeStatus(f *testing.F) {
	f.Add([]byte("tar"), "why")
	f.Add([]byte{}, "\x00\"\xff")
	f.Fuzz(func(t *testing.T, sent []byte, why string) {
		var got bytes.Buffer
		wire := append(bytes.Clone(sent), TreeStatus{Files: 1 << 30, Bytes: 1 << 60, Changed: 1 << 30, Error: why}.Encode()...)
		s, err := ReadTree(bytes.NewReader(wire), &got)
		if !bytes.Equal(got.Bytes(), sent) || (err == nil) != (why == "") || s.Files != 1<<30 {
			t.Errorf("got %q, %+v, %v", got.Bytes(), s, err)
		}
		_, _ = ReadTree(bytes.NewReader(sent), io.Discard)
	})
}
