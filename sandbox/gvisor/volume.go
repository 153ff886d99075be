//go:build linux

package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
	"github.com/dormouse-run/dormouse/internal/beneath"
	"github.com/dormouse-run/dormouse/internal/boot"
)

// volume is where the files of a session lie: a file system of its own where its
// size is limited, else a directory. In it:
//
//	base/    the layer everything begins with, empty
//	upper/   what was written to the first workspace
//	work/    the overlay's own
//	ws/N/    the same two for workspace N
//	home/    the home directory
//	tmp/     /tmp
type volume struct {
	session dormouse.SessionID
	dir     string // of the session
}

func (d *Driver) volumeOf(id dormouse.SessionID) volume {
	return volume{session: id, dir: filepath.Join(d.opts.Dir, sessionsDir, string(id))}
}

func (v volume) image() string { return filepath.Join(v.dir, "volume.img") }
func (v volume) at() string    { return filepath.Join(v.dir, "volume") }

// in is a directory of the volume while it is open.
func (v volume) in(name string) string { return filepath.Join(v.at(), name) }

// home and tmp are written to by whatever runs in the sandbox.
func (v volume) home() beneath.Tree { return beneath.At(v.in("home")) }
func (v volume) tmp() beneath.Tree  { return beneath.At(v.in("tmp")) }

// ahead is an empty volume that is made and opened with a box, for a session which
// may have none.
func (b box) ahead() volume { return volume{dir: filepath.Join(b.dir, "ahead")} }

func (d *Driver) volumeAhead(b box) error {
	if d.template == "" {
		return nil
	}
	v := b.ahead()
	if err := os.MkdirAll(v.at(), 0o700); err != nil {
		return fmt.Errorf("make a volume ahead: %w", err)
	}
	err := copySparse(d.template, v.image())
	if err == nil {
		err = mountLoop(v.image(), v.at())
	}
	if err == nil {
		err = v.furnish()
	}
	if err != nil {
		return fmt.Errorf("make a volume ahead: %w", err)
	}
	return nil
}

// openVolume makes a session's files reachable. If there is no volume it is the
// one that was made ahead, if that is there, or a new one of the size that the
// limits say.
func (d *Driver) openVolume(v, ahead volume, l dormouse.Limits) error {
	if err := v.sound(); err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	if err := os.MkdirAll(v.at(), 0o700); err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	if err := d.mountVolume(v, ahead, l); err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	return v.furnish()
}

// furnish makes the directories that every volume has.
func (v volume) furnish() error {
	for _, dir := range []string{v.in("base"), v.home().Host()} {
		if err := makeDirs(dir); err != nil {
			return fmt.Errorf("open volume: %w", err)
		}
	}
	err := os.Mkdir(v.tmp().Host(), 0o700)
	if err == nil {
		err = os.Chmod(v.tmp().Host(), 0o777|fs.ModeSticky)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open volume: %w", err)
	}
	return nil
}

func (d *Driver) mountVolume(v, ahead volume, l dormouse.Limits) error {
	_, err := os.Stat(v.image())
	if errors.Is(err, fs.ErrNotExist) && empty(v.at()) {
		if err = d.makeVolume(v, ahead, l); err == nil {
			err = errors.Join(atomicfile.SyncDir(v.dir), atomicfile.SyncDir(filepath.Dir(v.dir))) // a cut must not take its name
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoVolumes):
		return v.noteOpened() // a plain directory
	case err != nil:
		return err
	}
	there, err := mounted(v.at())
	if err != nil || there {
		return err
	}
	return mountLoop(v.image(), v.at())
}

// makeVolume makes a session's volume, or says that there can be none. The usual
// one was made ahead, or is a copy.
func (d *Driver) makeVolume(v, ahead volume, l dormouse.Limits) error {
	usual := l.Disk == d.opts.Limits.Disk && l.Inodes == d.opts.Limits.Inodes
	switch {
	case l.Disk == 0, usual && d.template == "":
		return errNoVolumes
	case usual:
		err := os.Rename(ahead.image(), v.image())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return copySparse(d.template, v.image())
		case err != nil:
			return err
		}
		// It is open there, and stays so until the box goes.
		return mountAt(ahead.at(), v.at(), "volume", unix.MS_BIND, "")
	}
	return makeFileSystem(v.image(), l)
}

// show makes a session's files reachable if there are any.
func (v volume) show() (there bool, err error) {
	_, err = os.Stat(v.image())
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(v.at())
		return err == nil, nil
	}
	if err == nil {
		there, err = mounted(v.at())
	}
	if err == nil && !there {
		err = mountLoop(v.image(), v.at())
	}
	if err != nil {
		return false, fmt.Errorf("open volume: %w", err)
	}
	return true, nil
}

func empty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// close makes the files unreachable again. They stay, and are synced: a volume that is
// closed without an error is one whose disk took everything.
func (v volume) close() error {
	there, err := mounted(v.at())
	if err != nil {
		return err
	}
	if there {
		_ = v.sync() // it is noted if it failed, and told to who wants the files next
	} else if err := v.forgetOpened(); err != nil {
		return err
	}
	return unmountUnder(v.at())
}

// noteOpened notes during which boot files in a plain directory were opened, which a
// file system of their own would say itself.
func (v volume) noteOpened() error {
	now, err := boot.ID()
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(v.openedNote()); err == nil && string(was) == now {
		return nil
	}
	return atomicfile.Write(v.openedNote(), []byte(now), 0o600)
}

// forgetOpened says that files in a plain directory are not in use any more.
func (v volume) forgetOpened() error {
	if _, err := os.Stat(v.openedNote()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := v.sync(); err != nil {
		return nil //nolint:nilerr // it is noted, and told to who wants the files next
	}
	return os.Remove(v.openedNote())
}

// sync makes the files durable. A sync that has failed is never believed again: what
// was to be written is dropped, and still seems to be there.
func (v volume) sync() error {
	if err := v.failed(); err != nil {
		return fmt.Errorf("sync volume: %w", err)
	}
	f, err := os.Open(v.at())
	if err != nil {
		return fmt.Errorf("sync volume: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = unix.Syncfs(int(f.Fd()))
	if gaveUp := v.gaveUp(); gaveUp != nil {
		err = gaveUp
	}
	if err != nil {
		return fmt.Errorf("sync volume: %w", v.fail(err))
	}
	return nil
}

// errNoVolumes says that sizes cannot be limited here.
var errNoVolumes = errors.New("the size of workspaces is not limited")

// makeTemplate makes the file system that every usual volume begins as.
func makeTemplate(dir string, l dormouse.Limits) (string, error) {
	if l.Disk == 0 {
		return "", nil
	}
	if _, err := volumeTool(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, fmt.Sprintf("volume-%d-%d.img", l.Disk, l.Inodes))
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	return name, makeFileSystem(name, l)
}

// volumeTool is what makes file systems, if this machine can also mount them.
func volumeTool() (string, error) {
	mkfs, err := findTool("mkfs.ext4")
	if err == nil {
		_, err = os.Stat("/dev/loop-control")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoVolumes, err)
	}
	return mkfs, nil
}

// makeFileSystem makes a file system of a limited size in a file, whole or not at
// all.
func makeFileSystem(name string, l dormouse.Limits) error {
	mkfs, err := volumeTool()
	if err != nil {
		return err
	}
	tmp := name + ".new"
	defer func() { _ = os.Remove(tmp) }()
	if err := os.WriteFile(tmp, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(tmp, l.Disk); err != nil {
		return err
	}
	args := []string{"-q", "-F", "-m", "0", "-J", "size=4", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"}
	if l.Inodes > 0 {
		const perInode = 4096 // no small volume is made of inodes alone
		args = append(args, "-N", strconv.FormatInt(min(l.Inodes, l.Disk/perInode), 10))
	}
	cmd := exec.Command(mkfs, append(args, tmp)...) //nolint:gosec,noctx // it is quick
	cmd.Env = []string{}                            // nil would be ours
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a file system: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := syncFile(tmp); err != nil {
		return fmt.Errorf("make a file system: %w", err)
	}
	return os.Rename(tmp, name)
}

// syncFile makes a file durable.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// findTool finds a program that may be where only administrators look.
func findTool(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin", "/run/current-system/sw/bin"} {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// copySparse copies a file without the holes in it, whole or not at all.
func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = out.Truncate(info.Size())
	for at := int64(0); err == nil && at < info.Size(); {
		var start, end int64
		start, err = unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			err = nil
			break
		}
		if err == nil {
			end, err = unix.Seek(int(in.Fd()), start, unix.SEEK_HOLE)
		}
		if err == nil {
			_, err = io.Copy(io.NewOffsetWriter(out, start), io.NewSectionReader(in, start, end-start))
		}
		at = end
	}
	if err == nil {
		err = out.Sync() // what lies in it later is synced, and must lie in something
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", filepath.Base(from), errors.Join(err, os.Remove(to+".new")))
	}
	return os.Rename(to+".new", to)
}

// mountLoop mounts the file system in a file. The device goes with the mount, but
// not at once: a kernel that was ended lets go of it a moment later, and whatever
// was started on this machine while it was mounted may hold on to it for long.
// Until then its file system is there and writes, so that it is mounted again:
// two must never write to one file.
func mountLoop(image, at string) error {
	dev, err := showing(image)
	if err == nil && dev == nil {
		dev, err = attachLoop(image)
	}
	if err != nil {
		return fmt.Errorf("attach %s: %w", filepath.Base(image), err)
	}
	defer func() { _ = dev.Close() }()
	// Tables are not zeroed in the background: that would fill what is sparse.
	return mountAt(dev.Name(), at, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "noinit_itable,discard")
}

// showing opens the loop device that a file has, and returns nil if it has none.
// As long as it is open it stays.
func showing(file string) (*os.File, error) {
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	shows := func(name string) bool {
		raw, err := os.ReadFile(name) // what cannot be read went away
		return err == nil && strings.TrimSuffix(string(raw), "\n") == file
	}
	for _, name := range devices {
		if !shows(name) {
			continue
		}
		dev, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(filepath.Dir(name))), os.O_RDWR, 0)
		switch {
		case errors.Is(err, unix.ENXIO): // the last to have it has closed it
			continue
		case err != nil:
			return nil, err
		case shows(name):
			return dev, nil
		}
		_ = dev.Close() // it is another file's by now
	}
	return nil, nil //nolint:nilnil // it has none
}

func attachLoop(image string) (*os.File, error) {
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ctl.Close() }()
	for range 100 { // others may be quicker to take what is free
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) { // nobody made the node
			err = unix.Mknod(fmt.Sprintf("/dev/loop%d", n), unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))) //nolint:gosec // small numbers
			if err == nil || errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{
			Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}, //nolint:gosec // descriptors are small
		})
		if err == nil {
			return dev, nil
		}
		_ = dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("no loop device is free")
}
