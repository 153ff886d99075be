//go:build linux

package volume

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// recoveryOf is from a snapshot with a file of some MiB.
func recoveryOf(t *testing.T, mib int) sandbox.Recovery {
	t.Helper()
	r := recovery(t)
	point, done, err := r.Newest(t.Context())
	must(t, err)
	done()
	must(t, os.WriteFile(filepath.Join(point[0], "large"), bytes.Repeat([]byte("large\n"), mib<<20/6), 0o600))
	r.Newest = func(context.Context) ([]string, func(), error) { return point, func() {}, nil }
	return r
}

// shrink takes away everything that a file system is found by, and its length.
func shrink(t *testing.T, v Volume, size int64) {
	t.Helper()
	must(t, errors.Join(os.Truncate(v.Image(), 0), os.Truncate(v.Image(), size)))
}

// A volume that says nothing of how large it was is set aside once, and the one in its
// place has room for the snapshot.
func TestVolumeThatHasLostItsLengthIsSetAsideOnce(t *testing.T) {
	for name, size := range map[string]int64{"too short for the snapshot": 16 << 20, "too short for a file system": 100 << 10} {
		t.Run(name, func(t *testing.T) {
			d, v := newFailing(t)
			before, err := os.Stat(v.Image())
			must(t, err)
			shrink(t, v, size)
			done, err := d.Recover(t.Context(), recoveryOf(t, 24))
			if err != nil {
				t.Fatalf("recovered is %+v, %v; aside are %v", done, err, v.asides())
			}
			if aside, err := os.Stat(done.Aside); err != nil || !os.SameFile(aside, before) || len(v.asides()) != 1 {
				t.Errorf("aside at %q there is another one, %v; all are %v", done.Aside, err, v.asides())
			}
			wantRecovered(t, d, v, false)
		})
	}
}

// However often a recovery finds no room for the snapshot, it sets aside the volume that
// the session had, and none that it made itself.
func TestRecoveryThatFindsNoRoomSetsAsideOnce(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, Volume){
		"a volume that is read":     func(*testing.T, Volume) {},
		"a volume beyond repair":    ruin,
		"a volume without a length": func(t *testing.T, v Volume) { t.Helper(); shrink(t, v, 16<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, 256)
			d.limits.Disk = 32 << 20
			v := d.volumeOf(failing)
			must(t, makeSession(d, v))
			before, err := os.Stat(v.Image())
			must(t, err)
			damage(t, v)
			for range 3 {
				if done, err := d.Recover(t.Context(), recoveryOf(t, 40)); !errors.Is(err, layer.ErrNoSpace) {
					t.Fatalf("without room it is recovered: %+v, %v", done, err)
				}
				if all := v.asides(); len(all) != 1 {
					t.Fatalf("aside are %v", all)
				}
			}
			done, err := d.Recover(t.Context(), recoveryOf(t, 2))
			if err != nil || done == nil {
				t.Fatalf("recovered is %+v, %v", done, err)
			}
			if aside, err := os.Stat(done.Aside); err != nil || !os.SameFile(aside, before) {
				t.Errorf("aside at %q there is another one, %v", done.Aside, err)
			}
			wantRecovered(t, d, v, false)
			// What the session has from here on is its own, and is set aside like the first.
			must(t, v.recordCondition(sandbox.Failed, "it failed again"))
			if done, err := d.Recover(t.Context(), recoveryOf(t, 40)); !errors.Is(err, layer.ErrNoSpace) || len(v.asides()) != 2 {
				t.Errorf("recovered is %+v, %v; aside are %v", done, err, v.asides())
			}
		})
	}
}

// makeSession makes a volume that has failed.
func makeSession(d *testStore, v Volume) error {
	d.template = "" // it is of another size
	return errors.Join(os.MkdirAll(v.Mountpoint(), 0o700), makeFileSystem(v.Image(), d.limits), v.markCreated(), v.recordCondition(sandbox.Failed, "it failed"))
}
