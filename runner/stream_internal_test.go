//go:build linux

package runner

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRedialIsQuickAfterALossAndSlowAfterAMinute(t *testing.T) {
	var d redial
	steps := func(span time.Duration) (last time.Duration, n int) {
		for total := time.Duration(0); total < span; n++ {
			last = d.step()
			d.slept(last, last)
			total += last
		}
		return last, n
	}
	if first := d.step(); first != firstRedial {
		t.Errorf("first after %v", first)
	}
	d = redial{}
	if last, n := steps(10 * time.Second); last != lastRedial || n < 200 {
		t.Errorf("%d dials in ten seconds, the last after %v", n, last)
	}
	steps(time.Minute)
	if last, n := steps(time.Hour); last != slowRedial || n > 3700 {
		t.Errorf("%d dials in an hour, the last after %v", n, last)
	}
	for _, took := range []time.Duration{time.Hour, -time.Hour} {
		steps(2 * time.Minute)
		d.slept(slowRedial, took)
		if first := d.step(); first != firstRedial {
			t.Errorf("first after %v, when the clock jumped by %v", first, took)
		}
	}
}

func FuzzSockets(f *testing.F) {
	f.Add([]byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1\n"))
	f.Add([]byte("   0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 7\n"))
	f.Add([]byte("   0: 0000000000000000FFFF00000100007F:0016 0:0 0A 0:0 00:0 0 0 0 7"))
	f.Add([]byte("0: :FFFFF 0 0A 0 0 0 0 0 -1\n\n0: 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range parseSockets(b) {
			if !s.at.IsValid() {
				t.Errorf("socket: %v", s)
			}
		}
	})
}

func TestSocketsAreReadFromTheTable(t *testing.T) {
	table := "  sl  local_address rem_address   st ...\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1\n" +
		"   1: 0100007F:1F91 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 12346 1\n" +
		"   0: 00000000000000000000000001000000:0016 0:0 0A 0:0 00:0 0 0 0 7\n" +
		"   0: 0000000000000000FFFF00000100007F:0017 0:0 0A 0:0 00:0 0 0 0 8\n"
	want := []string{"127.0.0.1:8080", "[::1]:22", "127.0.0.1:23"}
	got := parseSockets([]byte(table))
	if len(got) != len(want) {
		t.Fatalf("sockets: %v", got)
	}
	for i, s := range got {
		if s.at.String() != want[i] {
			t.Errorf("socket %d is %v, want %s", i, s.at, want[i])
		}
	}
	if got[0].inode != 12345 {
		t.Errorf("inode: %d", got[0].inode)
	}
}

func FuzzStat(f *testing.F) {
	if b, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(b)
	}
	f.Add([]byte("1 (a) b) S 1 2 3 4 5 6 7 8 9 10 9999999999999999 2 3 4 5 6 7 8 9 10 11"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseStat(b); ok && (s.cpu < 0 || s.rss < 0) {
			t.Errorf("stat: %+v", s)
		}
	})
}

func FuzzInotify(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 'a', 0, 0, 0})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := newWatcher(dir, true, 4)
		if err != nil {
			t.Fatal(err)
		}
		defer w.release()
		w.read(b)
	})
}

func TestWatchIsOverOnlySoManyDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/b/c", "d/e/f", "g"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w, err := newWatcher(dir, true, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer w.release()
	if len(w.paths) != 4 || len(w.out) != 1 || !w.out[0].Overflow {
		t.Errorf("watched: %v, told: %v", w.paths, w.out)
	}
}

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
		wire := append(bytes.Clone(sent), TreeStatus{Files: 1 << 30, Bytes: 1 << 60, Changed: 1 << 30, Error: why}.encode()...)
		s, err := ReadTree(bytes.NewReader(wire), &got)
		if !bytes.Equal(got.Bytes(), sent) || (err == nil) != (why == "") || s.Files != 1<<30 {
			t.Errorf("got %q, %+v, %v", got.Bytes(), s, err)
		}
		_, _ = ReadTree(bytes.NewReader(sent), io.Discard)
	})
}
