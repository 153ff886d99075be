//go:build linux

package inside

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRedialIsQuickAfterALossAndSlowAfterAMinute(t *testing.T) {
	var d backoff
	steps := func(span time.Duration) (last time.Duration, n int) {
		for total := time.Duration(0); total < span; n++ {
			last = d.step()
			d.observe(last, last)
			total += last
		}
		return last, n
	}
	if first := d.step(); first != firstRedial {
		t.Errorf("first after %v", first)
	}
	d = backoff{}
	if last, n := steps(10 * time.Second); last != lastRedial || n < 200 {
		t.Errorf("%d dials in ten seconds, the last after %v", n, last)
	}
	steps(time.Minute)
	if last, n := steps(time.Hour); last != slowRedial || n > 3700 {
		t.Errorf("%d dials in an hour, the last after %v", n, last)
	}
	for _, took := range []time.Duration{time.Hour, -time.Hour} {
		steps(2 * time.Minute)
		d.observe(slowRedial, took)
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
