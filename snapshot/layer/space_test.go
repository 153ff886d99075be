//go:build linux

package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// A workspace may hold more than the disk has left. Whatever is made of it, something
// of the disk is left to others.
func TestLayersLeaveTheReserve(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	const most, left = 24 << 20, 3 << 20
	large, many := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(large, "large"), bytes.Repeat([]byte("x"), most), 0o600))
	for i := range most / 4096 {
		must(t, os.WriteFile(filepath.Join(many, fmt.Sprint(i)), []byte("x"), 0o600))
	}
	for from, dir := range map[string]string{"a large file": large, "many files": many} {
		var packed bytes.Buffer
		must(t, layer.Pack(t.Context(), dir, plenty, &packed))
		for what, do := range map[string]func(to string) error{
			"capture": func(to string) error {
				_, err := layer.NewCapture(beneath.At(dir), to, nil, nil, plenty).Pass(t.Context(), nil)
				return err
			},
			"unpack":  func(to string) error { return layer.Unpack(t.Context(), bytes.NewReader(packed.Bytes()), plenty, to) },
			"merge":   func(to string) error { return layer.Merge(t.Context(), []string{dir}, plenty, to) },
			"flatten": func(to string) error { return layer.Flatten(t.Context(), []string{dir}, plenty, to) },
			"adopt": func(to string) error {
				_, err := layer.UnpackOCI(t.Context(), bytes.NewReader(packed.Bytes()), plenty, to)
				return err
			},
		} {
			t.Run(what+" "+from, func(t *testing.T) {
				to := t.TempDir()
				must(t, unix.Mount("tmpfs", to, "tmpfs", 0, fmt.Sprintf("size=%d", most)))
				defer func() { must(t, unix.Unmount(to, 0)) }()
				if err := do(to); !errors.Is(err, unix.ENOSPC) {
					t.Errorf("it ends with %v, want %v", err, unix.ENOSPC)
				}
				var at unix.Statfs_t
				must(t, unix.Statfs(to, &at))
				if free := int64(at.Bavail) * at.Bsize; free < left/2 {
					t.Errorf("%d KiB are left", free>>10)
				}
			})
		}
	}
}
