//go:build linux

package gvisor

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/sandbox"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Files that a server with other mounts has opened are synced all the same.
func TestFilesThatAreOpenElsewhereAreSynced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	const id = dormouse.SessionID("sesn_0000000000000000000000000a")
	for _, newest := range []dormouse.SnapshotID{"", "snap_1"} {
		log, limits := slog.New(slog.DiscardHandler), dormouse.Limits{Disk: 64 << 20}
		d := &Driver{opts: Options{Dir: t.TempDir(), Limits: limits}, log: log}
		var err error
		d.volumes, err = volume.NewStore(d.opts.Dir, limits, log)
		check(t, err)
		t.Cleanup(d.volumes.Stop)
		v := d.session(id)
		check(t, d.volumes.Open(v.Volume, volume.Volume{Dir: d.path("none")}, limits))
		check(t, errors.Join(v.Sync(), v.SyncName()))
		// A process with mounts of its own, as a service of the machine may have.
		other := exec.Command("unshare", "-m", "sleep", "300")
		check(t, other.Start())
		t.Cleanup(func() {
			_ = other.Process.Kill()
			_ = other.Wait()
		})
		for comm := ""; comm != "sleep\n"; check(t, sleep.For(t.Context(), time.Millisecond)) {
			raw, err := os.ReadFile("/proc/" + strconv.Itoa(other.Process.Pid) + "/comm")
			check(t, err)
			comm = string(raw)
		}

		check(t, v.CreateWorkspace(t.Context(), sandbox.Workspace{}))
		check(t, v.writeRecord(record{Generation: 1, Box: d.newBox().id}))
		check(t, mount.UnmountAll(v.Mountpoint()))
		check(t, d.Sync(t.Context(), id, 0, newest))
		if open, err := v.IsMounted(); err != nil || !open {
			t.Errorf("a sandbox has them, and they are not reached: %v", err)
		}
		check(t, errors.Join(d.volumes.Close(v.Volume), os.Remove(v.recordFile())))
		check(t, d.Sync(t.Context(), id, 0, newest))
		if open, err := v.IsMounted(); err != nil || open {
			t.Errorf("no sandbox has them, and they are open: %v", err)
		}
	}
}
