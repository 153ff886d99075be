//go:build linux

package gvisor

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/harness/powercut"
	"github.com/dormouse-run/dormouse/sandbox/gvisor/volume"
)

// sealed writes a memory image to a disk of its own and seals it, while the disk
// fails what hit picks.
func sealed(t *testing.T, hit func(powercut.Request) bool) (shown, under sessionDir, disk *powercut.Disk, err error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse")
	}
	shown, under = sessionDir{volume.Volume{Dir: t.TempDir()}}, sessionDir{volume.Volume{Dir: t.TempDir()}}
	disk, err = powercut.Mount(under.Dir, shown.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := shown.newImageDir()
	for _, d := range []string{shown.Mountpoint(), dir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range imageFiles {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(name), 3000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	disk.Inject(func(r powercut.Request) error {
		if hit(r) {
			return syscall.EIO
		}
		return nil
	})
	return shown, under, disk, memoryImage{Generation: 7}.seal(dir, shown)
}

func TestMemoryImageIsOnTheDiskWhenItIsSealed(t *testing.T) {
	_, under, disk, err := sealed(t, func(powercut.Request) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Cut(nil); err != nil {
		t.Fatal(err)
	}
	im, err := under.readImage()
	if err != nil || im == nil {
		t.Fatalf("after the power cut there is %v, %v", im, err)
	}
	if err := im.verify(); err != nil {
		t.Error(err)
	}
}

// The sandbox runs on when its image could not be made durable. The next freeze must
// not take that image for its memory.
func TestMemoryImageWhoseSyncFailedIsNotFoundLater(t *testing.T) {
	for name, hit := range map[string]func(powercut.Request) bool{
		"memory": func(r powercut.Request) bool { return r.Op == powercut.Sync && filepath.Base(r.Path) == imageFiles[2] },
		"note":   func(r powercut.Request) bool { return r.Op == powercut.SyncDir && filepath.Base(r.Path) == "image.new" },
		"name":   func(r powercut.Request) bool { return r.Op == powercut.SyncDir && r.Path == "." },
	} {
		t.Run(name, func(t *testing.T) {
			shown, _, _, err := sealed(t, hit)
			if err == nil {
				t.Error("an image whose sync failed was sealed")
			}
			if im, err := shown.readImage(); im != nil || err != nil {
				t.Errorf("the next freeze finds generation %d, %v", im.Generation, err)
			}
		})
	}
}
