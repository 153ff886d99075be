//go:build linux

package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox"
)

// closedWell closes a volume that nothing is wrong with, as far as it knows.
func closedWell(t *testing.T) (*testStore, Volume) {
	t.Helper()
	d, v := newFailing(t)
	must(t, errors.Join(v.clearFailure(), v.dropCaches(t.Context()))) // others may hold on to it
	wantCondition(t, v, sandbox.Sound)
	return d, v
}

// A volume that was closed and cannot be opened any more is recovered like any other.
func TestVolumeThatDoesNotOpenAnyMoreIsRecovered(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, Volume){
		"cut short":       func(t *testing.T, v Volume) { t.Helper(); must(t, os.Truncate(v.Image(), 64<<20)) },
		"almost gone":     func(t *testing.T, v Volume) { t.Helper(); must(t, os.Truncate(v.Image(), 100<<10)) },
		"groups are gone": func(t *testing.T, v Volume) { t.Helper(); wipe(t, v, 2048, 4096) },
	} {
		t.Run(name, func(t *testing.T) {
			d, v := closedWell(t)
			before, err := os.Stat(v.Image())
			must(t, err)
			damage(t, v)
			if _, err := d.openAs(v); err == nil {
				t.Fatal("it can be opened")
			}
			if _, err := d.Recover(t.Context(), recovery(t)); err != nil {
				t.Fatal(err)
			}
			wantRecovered(t, d, v, name == "groups are gone")
			if after, err := os.Stat(v.Image()); err != nil || after.Size() != before.Size() {
				t.Errorf("it is of another size: %v, %v", after, err)
			}
		})
	}
}

// wipe takes away a part of a volume.
func wipe(t *testing.T, v Volume, from, to int64) {
	t.Helper()
	f, err := os.OpenFile(v.Image(), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, to-from), from)
	must(t, errors.Join(err, f.Close()))
}

// A volume that other processes keep mounted, and whose file system has aborted, has
// failed, though it is not open here and the failure was not noted.
func TestHeldVolumeThatGaveUpHasFailed(t *testing.T) {
	d, v := newHeld(t)
	must(t, v.abort())
	must(t, mount.UnmountAll(v.Mountpoint()))
	d.balancer.remove(v)
	wantCondition(t, v, sandbox.Failed)
}

// What was recorded is not reported again; what was recovered after that is still
// reported, though the note of the first was not removed.
func TestRecoveryAfterOneThatIsRecordedIsAnother(t *testing.T) {
	d, v := newFailing(t)
	first, err := d.Recover(t.Context(), recovery(t))
	if err != nil || first == nil {
		t.Fatalf("recovered is %+v, %v", first, err)
	}
	if again, err := d.Recover(t.Context(), recovery(t)); err != nil || again == nil || again.ID != first.ID {
		t.Fatalf("told again is %+v, %v", again, err)
	}
	must(t, v.recordCondition(sandbox.Cut, "the machine has started anew"))
	second, err := d.Recover(t.Context(), recovery(t))
	if err != nil || second == nil || second.ID == first.ID {
		t.Errorf("recovered after that is %+v, %v", second, err)
	}
}

// What a check of the file system takes away of a workspace's own directories is made
// again, whichever workspace it is.
func TestWorkspaceWhoseDirectoriesAreLostIsMadeAgain(t *testing.T) {
	for _, lost := range []string{"upper", "work", "base", "."} {
		for number := range uint64(2) {
			if number == 0 && (lost == "base" || lost == ".") {
				continue
			}
			t.Run(lost, func(t *testing.T) {
				d, v := newFailing(t)
				must(t, v.clearFailure())
				r := recovery(t)
				w := sandbox.Workspace{Number: number}
				if number > 0 {
					w.Base = "snap_0"
				}
				r.Workspace = w
				_, err := d.openAs(v)
				must(t, errors.Join(err, v.CreateWorkspace(t.Context(), w), v.Latest().Record(number)))
				must(t, os.RemoveAll(filepath.Join(v.workspaceDir(number), lost)))
				must(t, d.Close(v))
				must(t, v.recordCondition(sandbox.Failed, "it was checked"))
				if _, err := d.Recover(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				_, err = d.openAs(v)
				must(t, err)
				defer func() { must(t, d.Close(v)) }()
				must(t, v.CreateWorkspace(t.Context(), w))
				at := t.TempDir()
				must(t, v.MountWorkspace(w, at))
				defer func() { must(t, mount.UnmountAll(at)) }()
				if raw, err := os.ReadFile(filepath.Join(at, "kept")); err != nil || string(raw) != "of the snapshot" {
					t.Errorf("of the snapshot there is %q, %v", raw, err)
				}
			})
		}
	}
}

// A recovery for which the machine's disk has no room waits for it, and makes nothing that
// a full disk would ruin: of a file system that is mounted there most is lost.
func TestRecoveryWithoutRoomOnTheDiskWaits(t *testing.T) {
	for _, kib := range []int64{0, 64, 256, 384, 512, 4 << 10, 20 << 10} {
		t.Run(fmt.Sprint(kib), func(t *testing.T) {
			d, v := newFailing(t)
			ruin(t, v)
			d.commit(t) // until then what was freed is not free
			room := d.path("room")
			must(t, os.WriteFile(room, nil, 0o600))
			if kib > 0 {
				must(t, allocate(room, kib<<10))
			}
			free := d.fill(t)
			must(t, os.Remove(room))
			d.commit(t)
			if done, err := d.Recover(t.Context(), recovery(t)); !errors.Is(err, dormouse.ErrFull) {
				t.Errorf("without room it is recovered: %+v, %v", done, err)
			}
			if aside := v.asides(); kib<<10 < minHeadroom && len(aside) > 0 {
				t.Errorf("without room it is set aside as %v", aside)
			}
			free()
			d.commit(t)
			done, err := d.Recover(t.Context(), recovery(t))
			if err != nil || done == nil || !strings.Contains(done.Reason, notReadable) {
				t.Fatalf("recovered is %+v, %v", done, err)
			}
			wantRecovered(t, d, v, false)
		})
	}
}

// commit has the disk give back what was removed.
func (d *testStore) commit(t *testing.T) {
	t.Helper()
	f, err := os.Open(d.dir)
	must(t, err)
	must(t, errors.Join(unix.Syncfs(int(f.Fd())), f.Close()))
}

func allocate(name string, length int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, length), f.Close())
}
