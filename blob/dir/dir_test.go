package dir_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob"
	"github.com/dormouse-run/dormouse/blob/blobtest"
	"github.com/dormouse-run/dormouse/blob/dir"
)

// tick is more than the times of files may be off.
const tick = blobtest.Tick(50 * time.Millisecond)

func TestStoreKeepsItsPromises(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return open(t, t.TempDir()) })
	blobtest.RunCollectable(t, tick, func(t *testing.T) blobtest.Collectable { return open(t, t.TempDir()) })
}

func TestBlobsOutliveTheStore(t *testing.T) {
	root := t.TempDir()
	d, err := open(t, root).Put(t.Context(), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := open(t, root).Get(t.Context(), d)
	if err != nil || string(b) != "hello" {
		t.Errorf("get = %q, %v", b, err)
	}
	if want := []string{path(root, d)}; len(files(t, root)) != 1 || files(t, root)[0] != want[0] {
		t.Errorf("files = %v, want %v", files(t, root), want)
	}
}

func TestGetMustNeverReturnOtherBytes(t *testing.T) {
	for name, rot := range map[string]func(path string) error{
		"changed": func(path string) error { return os.WriteFile(path, []byte("hellO"), 0o600) },
		"cut off": func(path string) error { return os.Truncate(path, 3) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"longer":  func(path string) error { return os.WriteFile(path, []byte("hello "), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s := open(t, root)
			d, err := s.Put(t.Context(), []byte("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if err := rot(path(root, d)); err != nil {
				t.Fatal(err)
			}
			if b, err := s.Get(t.Context(), d); !errors.Is(err, blob.ErrCorrupt) {
				t.Errorf("get = %q, %v, want ErrCorrupt", b, err)
			}
			r, n, err := s.Open(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); !errors.Is(err, blob.ErrCorrupt) || n > 0 && int64(len(got)) >= n {
				t.Errorf("read = %q of %d, %v, want ErrCorrupt before the end", got, n, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			// A put of the same bytes repairs it.
			if _, err := s.Put(t.Context(), []byte("hello")); err != nil {
				t.Fatal(err)
			}
			if b, err := s.Get(t.Context(), d); err != nil || string(b) != "hello" {
				t.Errorf("get after another put = %q, %v", b, err)
			}
		})
	}
}

func TestAFileThatShrinksWhileItIsReadIsCorrupt(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	d, err := s.Put(t.Context(), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := s.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := os.Truncate(path(root, d), 3); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("read = %q, %v, want ErrCorrupt", b, err)
	}
}

func TestAStreamIsWrittenOnce(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	d, err := s.Put(t.Context(), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path(root, d))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []io.Reader{strings.NewReader("hello"), iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("hello")))} {
		if _, _, err := s.PutFrom(t.Context(), r); err != nil && !errors.Is(err, iotest.ErrTimeout) {
			t.Fatal(err)
		}
	}
	after, err := os.Stat(path(root, d))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("what was there is another file: %v", err)
	}
	if got := files(t, root); len(got) != 1 {
		t.Errorf("files = %v, want the blob alone", got)
	}
}

func TestOpenSweepsWhatACrashLeft(t *testing.T) {
	root := t.TempDir()
	d, err := open(t, root).Put(t.Context(), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, "tmp", "of the dead")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(left, ".tmp-1"), filepath.Join(root, "tmp", ".tmp-2")} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, root)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory of the dead is left: %v", err)
	}
	if got := files(t, root); len(got) != 1 {
		t.Errorf("files = %v, want the blob alone", got)
	}
	if b, err := s.Get(t.Context(), d); err != nil || string(b) != "hello" {
		t.Errorf("get = %q, %v", b, err)
	}
}

func TestOpenLeavesWhatTheLivingWrite(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	written, err := filepath.Glob(filepath.Join(root, "tmp", "*"))
	if err != nil || len(written) != 1 {
		t.Fatalf("directories being written to = %v, %v, want one", written, err)
	}
	if err := os.WriteFile(filepath.Join(written[0], ".tmp-1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := open(t, root)
	if _, err := os.Stat(filepath.Join(written[0], ".tmp-1")); err != nil {
		t.Errorf("what another store was writing: %v", err)
	}
	for _, s := range []*dir.Store{s, other} {
		if _, err := s.Put(t.Context(), []byte("hello")); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(root, "tmp", "*")); err != nil || len(left) != 1 {
		t.Errorf("after one was closed: %v, %v, want the other's alone", left, err)
	}
}

// Two stores in one directory are what two servers are to each other.
func TestWhatAnotherStorePutsIsNotCollected(t *testing.T) {
	root := t.TempDir()
	s, other := open(t, root), open(t, root)
	blobtest.PutAgainWhileCollecting(t, tick, s, other)
}

func TestEachPassesOverWhatIsNoBlob(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	if err := os.WriteFile(filepath.Join(root, "sha256", "ab", "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := s.Each(t.Context(), time.Now().Add(time.Hour), func(d dormouse.Digest) error {
		t.Errorf("blob %s", d)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func open(t *testing.T, root string) *dir.Store {
	t.Helper()
	s, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func path(root string, d dormouse.Digest) string {
	hex := strings.TrimPrefix(string(d), "sha256:")
	return filepath.Join(root, "sha256", hex[:2], hex)
}

// files lists every file under root.
func files(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
