//go:build linux

package snapshot_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

var zero = time.Unix(0, 0)

func content(t testing.TB, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return string(raw)
}

func list(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (c *counting) Open(ctx context.Context, d dormouse.Digest) (io.ReadCloser, int64, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Store.Open(ctx, d)
}

// asRoot leaves out what only root can do: overlays, devices, the files of others.
func asRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("layers are made by root")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// chtimes sets the time of a link.
func chtimes(t testing.TB, name string, to time.Time) {
	t.Helper()
	tv := unix.NsecToTimeval(to.UnixNano())
	must(t, unix.Lutimes(name, []unix.Timeval{tv, tv}))
}
