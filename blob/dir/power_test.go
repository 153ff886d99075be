//go:build linux

package dir_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/blob/dir"
	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
)

// outlet is a store on a disk whose power can be cut.
type outlet struct {
	*dir.Store
	t     *testing.T
	disk  *powercut.Disk
	shown string
	under string
}

func plugIn(t *testing.T) *outlet {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse")
	}
	t.Parallel()
	under, shown := t.TempDir(), t.TempDir()
	// The many directories are made where that is quick.
	if err := open(t, filepath.Join(under, "blobs")).Close(); err != nil {
		t.Fatal(err)
	}
	disk, err := powercut.Mount(under, shown)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	o := &outlet{t: t, disk: disk, shown: shown, under: under}
	o.restart()
	return o
}

// restart opens the blobs as the next process does.
func (o *outlet) restart() {
	o.t.Helper()
	if o.Store != nil {
		if err := o.Close(); err != nil {
			o.t.Fatal(err)
		}
	}
	s, err := dir.Open(filepath.Join(o.shown, "blobs"))
	if err != nil {
		o.t.Fatal(err)
	}
	o.Store = s
	o.t.Cleanup(func() { _ = s.Close() })
}

// survives cuts the power and fails unless the disk has the blob.
func (o *outlet) survives(d dormouse.Digest, want []byte) {
	o.t.Helper()
	if err := o.disk.Cut(nil); err != nil {
		o.t.Fatal(err)
	}
	hex := strings.TrimPrefix(string(d), "sha256:")
	got, err := os.ReadFile(filepath.Join(o.under, "blobs", "sha256", hex[:2], hex))
	if err != nil || !bytes.Equal(got, want) {
		o.t.Errorf("after the power cut there are %d bytes of %d, %v", len(got), len(want), err)
	}
}

var body = bytes.Repeat([]byte("a blob by itself "), 600)

func TestPutMustHaveMadeItDurableWhenItReturns(t *testing.T) {
	for name, put := range map[string]func(*outlet) (dormouse.Digest, error){
		"put": func(o *outlet) (dormouse.Digest, error) { return o.Put(t.Context(), body) },
		"put from": func(o *outlet) (dormouse.Digest, error) {
			d, _, err := o.PutFrom(t.Context(), bytes.NewReader(body))
			return d, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := plugIn(t)
			d, err := put(o)
			if err != nil {
				t.Fatal(err)
			}
			o.survives(d, body)
		})
	}
}

// After a failed sync the kernel shows pages that it could not write, and reports
// them as written. A second put of the same bytes succeeds only when they are
// durable.
func TestPutAfterAFailedSyncIsDurable(t *testing.T) {
	for _, op := range []powercut.Op{powercut.Sync, powercut.SyncDir} {
		for _, restarted := range []bool{false, true} {
			name := string(op)
			if restarted {
				name += ", by the next process"
			}
			t.Run(name, func(t *testing.T) {
				o := plugIn(t)
				failed := false
				o.disk.Inject(func(r powercut.Request) error {
					if r.Op != op || failed {
						return nil
					}
					failed = true
					return syscall.EIO
				})
				if _, err := o.Put(t.Context(), body); err == nil {
					t.Fatal("a put whose sync failed succeeded")
				}
				if restarted {
					o.restart()
				}
				d, err := o.Put(t.Context(), body)
				if err != nil {
					t.Fatal(err)
				}
				o.survives(d, body)
			})
		}
	}
}

// A process may die after the kernel failed to write what it had written: the file
// has its name, its pages are clean, and the disk has none of them.
func TestPutDoesNotBelieveAFileOfAnotherProcess(t *testing.T) {
	o := plugIn(t)
	d := dormouse.DigestOf(body)
	hex := strings.TrimPrefix(string(d), "sha256:")
	f, err := os.Create(filepath.Join(o.shown, "blobs", "sha256", hex[:2], hex))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(body); err != nil {
		t.Fatal(err)
	}
	o.disk.Inject(func(r powercut.Request) error {
		if r.Op == powercut.Sync {
			return syscall.EIO
		}
		return nil
	})
	if err := f.Sync(); err == nil {
		t.Fatal("the sync did not fail")
	}
	o.disk.Inject(nil)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Put(t.Context(), body); err != nil {
		t.Fatal(err)
	}
	o.survives(d, body)
}
