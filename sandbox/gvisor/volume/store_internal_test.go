//go:build linux

package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/sandbox"
)

// newDisk is a driver's directory on a file system of its own, of some MiB.
func newDisk(t *testing.T, size int64) *testStore {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	image, at := filepath.Join(t.TempDir(), "disk.img"), t.TempDir()
	must(t, makeFileSystem(image, dormouse.Limits{Disk: size << 20}))
	must(t, mountLoop(image, at))
	s, err := NewStore(at, dormouse.Limits{Disk: 1 << 30, Inodes: 1 << 16}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() {
		s.Stop()
		must(t, mount.UnmountAll(at))
	})
	if !s.balancer.supported || !s.Limited() {
		t.Fatal("this disk cannot be reserved")
	}
	return &testStore{s}
}

// testStore is a store with the directories of sessions.
type testStore struct{ *Store }

func (d *testStore) path(name string) string { return filepath.Join(d.dir, name) }

func (d *testStore) volumeOf(id dormouse.SessionID) Volume {
	return Volume{Session: id, Dir: d.path(string(id))}
}

// Recover recovers the files of a session that has no memory image.
func (d *testStore) Recover(ctx context.Context, r sandbox.Recovery) (*sandbox.Recovered, error) {
	v := d.volumeOf(r.Fence.Session)
	condition, why, err := v.Condition()
	if err == nil && condition == sandbox.Sound {
		return v.ReadRecovered()
	}
	if err != nil {
		return nil, err
	}
	return d.Store.Recover(ctx, v, r, Damage{Condition: condition, Reason: why, DropImage: func(string) error { return nil }})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// session opens the volume of a session, and keeps it in balance.
func (d *testStore) session(t *testing.T, name string) Volume {
	t.Helper()
	v := d.volumeOf(dormouse.SessionID("sesn_" + name))
	must(t, d.Open(v, Volume{Dir: d.path("none")}, d.limits))
	return v
}

func (d *testStore) onDisk(t *testing.T) disk {
	t.Helper()
	on, err := statDisk(d.dir)
	must(t, err)
	return on
}

// write writes to a file until there is no room any more, or enough, and returns how
// much that was. Nothing is synced.
func write(t *testing.T, name string, enough int64) (n int64) {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	for n < enough {
		wrote, err := f.Write(pattern(n))
		n += int64(wrote)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		must(t, err)
	}
	return n
}

// pattern is what a file has at an offset.
func pattern(at int64) []byte { return bytes.Repeat(fmt.Appendf(nil, "%08x", at), 8<<10) }

// wants compares a file that was written so.
func wants(t *testing.T, name string, n int64) {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer func() { _ = f.Close() }()
	for at := int64(0); at < n; {
		want := pattern(at)
		got := make([]byte, len(want))
		read, err := io.ReadFull(f, got)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || read == 0 || !bytes.Equal(got[:read], want[:read]) {
			t.Fatalf("%s is not what was written at %d: %v", filepath.Base(name), at, err)
		}
		at += int64(read)
	}
}

// fill takes all that is left of the disk from outside.
func (d *testStore) fill(t *testing.T) (free func()) {
	t.Helper()
	name := d.path("filler")
	f, err := os.Create(name)
	must(t, err)
	var size int64
	for step := int64(64 << 20); step >= 4096; {
		if err := unix.Fallocate(int(f.Fd()), 0, size, step); err != nil {
			step /= 2
			continue
		}
		size += step
	}
	must(t, f.Close())
	return func() { must(t, os.Remove(name)) }
}

// What was written to a volume is in it, even if the disk was filled meanwhile.
func TestAFullDiskDestroysNothingThatWasWritten(t *testing.T) {
	d := newDisk(t, 160)
	quiet, greedy := d.session(t, "quiet"), d.session(t, "greedy")
	n := write(t, quiet.Path("small"), 64<<10)
	d.fill(t)
	big := write(t, greedy.Path("big"), 1<<40)
	if big < minHeadroom/2 {
		t.Errorf("only %d bytes could be written", big)
	}
	n2 := write(t, quiet.Path("more"), minHeadroom/2)
	for i := range 2000 { // tables of inodes need room as well
		if err := os.WriteFile(quiet.Path(fmt.Sprintf("empty%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []Volume{quiet, greedy} {
		must(t, v.Sync())
		wantCondition(t, v, sandbox.Sound)
		must(t, d.Close(v))
		must(t, mountLoop(v.Image(), v.Mountpoint()))
	}
	wants(t, quiet.Path("small"), n)
	wants(t, quiet.Path("more"), n2)
	wants(t, greedy.Path("big"), big)
}

// A volume that fills has what the disk can spare, and no sandbox takes the reserve.
func TestAVolumeGrowsUntilTheReserve(t *testing.T) {
	d := newDisk(t, 160)
	v := d.session(t, "a")
	d.balancer.join(v, MaxHeadroom)
	var n int64
	for before := int64(-1); n > before; { // if a write is quicker than the balancer, it is repeated
		before = n
		n += write(t, v.Path(fmt.Sprint(n)), 1<<40)
		for d.onDisk(t).spare() > 0 { // until it can have no more
			if has, err := v.free(); err != nil || has > minHeadroom/2 {
				break
			}
		}
	}
	on := d.onDisk(t)
	if on.free < on.reserve()/2 || on.spare() > 2*minHeadroom {
		t.Errorf("%d MiB were written, and %d MiB are left of the disk, with a reserve of %d", n>>20, on.free>>20, on.reserve()>>20)
	}
	must(t, v.Sync())
	wantCondition(t, v, sandbox.Sound)
}

// However many volumes are open, most of the disk is left to other uses.
func TestHeadroomIsSharedByAllVolumes(t *testing.T) {
	on := disk{total: 100 << 30, free: 60 << 30}
	for _, volumes := range []int{1, 10, 100} {
		if all := int64(volumes) * on.headroom(MaxHeadroom, volumes); all > on.spare()/headroomShare {
			t.Errorf("%d volumes have %d MiB ahead of %d", volumes, all>>20, on.spare()>>20)
		}
	}
}

// What is removed inside is given back to the disk, at the latest when it is closed.
func TestRoomIsGivenBack(t *testing.T) {
	d := newDisk(t, 200)
	before := d.onDisk(t).free
	v := d.session(t, "a")
	b, err := v.openBacking()
	must(t, err)
	must(t, b.release(64<<20))
	must(t, b.close())
	write(t, v.Path("big"), 64<<20)
	must(t, v.Sync())
	if took := before - d.onDisk(t).free; took < 64<<20 {
		t.Errorf("only %d MiB are taken", took>>20)
	}
	must(t, os.Remove(v.Path("big")))
	n := write(t, v.Path("kept"), 1<<20)
	looks, err := os.Open(v.Mountpoint()) // as whatever was started meanwhile does
	must(t, err)
	defer func() { must(t, looks.Close()) }()
	must(t, d.Close(v))
	if took := before - d.onDisk(t).free; took > 16<<20 {
		t.Errorf("%d MiB are still taken", took>>20)
	}
	d.session(t, "a")
	wants(t, v.Path("kept"), n)
}

// A volume that cannot be backed is not opened, and can be once there is room.
func TestAVolumeIsNotOpenedWithoutRoom(t *testing.T) {
	d := newDisk(t, 160)
	v := d.session(t, "a")
	n := write(t, v.Path("kept"), 1<<20)
	must(t, d.Close(v))
	free := d.fill(t)
	if err := d.Open(v, Volume{Dir: d.path("none")}, d.limits); !errors.Is(err, dormouse.ErrFull) {
		t.Fatalf("it is opened with %v, want %v", err, dormouse.ErrFull)
	}
	if there, err := mount.Is(v.Mountpoint()); err != nil || there {
		t.Errorf("it is open: %v", err)
	}
	free()
	d.session(t, "a")
	wants(t, v.Path("kept"), n)
}

// A ballast that a check of the file system has taken most of is filled again: what is
// free inside needs no blocks of the disk.
func TestAVolumeThatHasLostItsBallastIsOpened(t *testing.T) {
	d := newDisk(t, 256)
	v := d.session(t, "a")
	must(t, os.WriteFile(filepath.Join(v.Home().Host(), "mine"), []byte("mine"), 0o600))
	must(t, d.Close(v))
	must(t, mountLoop(v.Image(), v.Mountpoint()))
	must(t, os.Truncate(v.ballast(), 1<<20))
	must(t, v.Close())
	must(t, d.Open(v, Volume{Dir: d.path("none")}, d.limits))
	if got, err := os.ReadFile(filepath.Join(v.Home().Host(), "mine")); err != nil || string(got) != "mine" {
		t.Errorf("of what was written there is %q, %v", got, err)
	}
	must(t, d.Close(v))
}

// On a disk without a byte left nothing is written to such a volume: it waits, and is sound.
func TestAVolumeThatHasLostItsBallastWaitsForRoom(t *testing.T) {
	d := newDisk(t, 400)
	v := d.session(t, "a")
	must(t, os.WriteFile(filepath.Join(v.Home().Host(), "mine"), []byte("mine"), 0o600))
	must(t, d.Close(v))
	must(t, mountLoop(v.Image(), v.Mountpoint()))
	must(t, os.Truncate(v.ballast(), 1<<20))
	must(t, v.Close())
	d.commit(t)
	free := d.fill(t)
	if err := d.Open(v, Volume{Dir: d.path("none")}, d.limits); !errors.Is(err, dormouse.ErrFull) {
		t.Errorf("it is opened with %v, want %v", err, dormouse.ErrFull)
	}
	wantCondition(t, v, sandbox.Sound)
	free()
	d.commit(t)
	must(t, d.Open(v, Volume{Dir: d.path("none")}, d.limits))
	if got, err := os.ReadFile(filepath.Join(v.Home().Host(), "mine")); err != nil || string(got) != "mine" {
		t.Errorf("of what was written there is %q, %v", got, err)
	}
	must(t, d.Close(v))
}

// A volume from before there was ballast is backed when it is opened.
func TestAnOldVolumeIsBacked(t *testing.T) {
	d := newDisk(t, 160)
	v := d.volumeOf("sesn_old")
	must(t, os.MkdirAll(v.Mountpoint(), 0o700))
	must(t, makeFileSystem(v.Image(), d.limits))
	must(t, mountLoop(v.Image(), v.Mountpoint()))
	n := write(t, v.Path("kept"), 1<<20)
	d.BackRunning(v)
	d.fill(t)
	more := write(t, v.Path("more"), 1<<40)
	must(t, v.Sync())
	wantCondition(t, v, sandbox.Sound)
	must(t, d.Close(v))
	must(t, mountLoop(v.Image(), v.Mountpoint()))
	wants(t, v.Path("kept"), n)
	wants(t, v.Path("more"), more)
}

// A volume without an inode left has no ballast, and is backed whole.
func TestAnOldVolumeWithoutInodesIsBackedWhole(t *testing.T) {
	d := newDisk(t, 160)
	v := d.volumeOf("sesn_old")
	must(t, os.MkdirAll(v.Mountpoint(), 0o700))
	must(t, makeFileSystem(v.Image(), dormouse.Limits{Disk: 32 << 20, Inodes: 256}))
	must(t, mountLoop(v.Image(), v.Mountpoint()))
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(v.Path(fmt.Sprint(i)), nil, 0o600)
	}
	must(t, d.Back(v))
	d.fill(t)
	n := write(t, v.Path("0"), 1<<40)
	must(t, v.Sync())
	wantCondition(t, v, sandbox.Sound)
	wants(t, v.Path("0"), n)
}

// What is not mounted is left alone: it would be the machine's own disk that is filled.
func TestBalanceLeavesAClosedVolumeAlone(t *testing.T) {
	d := newDisk(t, 160)
	v := d.session(t, "a")
	must(t, d.Close(v))
	before := d.onDisk(t).free
	if did, err := v.balance(1<<20, 1<<30, 1); did || err != nil {
		t.Errorf("it is balanced: %v", err)
	}
	if b, err := v.openBacking(); b != nil || err != nil {
		t.Errorf("it is backed: %v", err)
	}
	if !isEmpty(v.Mountpoint()) || d.onDisk(t).free != before {
		t.Error("something was made where it would be mounted")
	}
}

// A memory image takes no more than leaves something for the database.
func TestAMemoryImageLeavesRoomToOthers(t *testing.T) {
	d := newDisk(t, 160)
	free := d.onDisk(t).free
	must(t, d.FitsImage(free-minReserve))
	if err := d.FitsImage(free - minReserve/8); !errors.Is(err, dormouse.ErrFull) {
		t.Errorf("one that fills the disk is refused with %v, want %v", err, dormouse.ErrFull)
	}
}

func TestNoSandboxIsMadeWhereFewFilesFit(t *testing.T) {
	d := newDisk(t, 32)
	must(t, d.FitsFiles())
	dir := filepath.Join(d.dir, "filler")
	must(t, os.Mkdir(dir, 0o700))
	var err error
	for n := 0; err == nil; n++ {
		err = os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), nil, 0o600)
	}
	if err := d.FitsFiles(); !errors.Is(err, dormouse.ErrFull) {
		t.Errorf("on a disk that is full of files: %v", err)
	}
	must(t, os.RemoveAll(dir))
	must(t, d.FitsFiles())
}
