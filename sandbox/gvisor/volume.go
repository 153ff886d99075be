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
	"github.com/dormouse-run/dormouse/internal/filemode"
	"github.com/dormouse-run/dormouse/internal/mount"
	"github.com/dormouse-run/dormouse/snapshot/layer"
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
	err := d.copyTemplate(v.image())
	if err == nil {
		err = mountLoop(v.image(), v.at())
	}
	if err == nil {
		err = d.secure(v)
	}
	if err == nil {
		err = v.furnish()
	}
	if err != nil {
		return fmt.Errorf("make a volume ahead: %w", err)
	}
	d.reserves.join(v, mostHeadroom)
	return nil
}

// openVolume makes a session's files reachable. If there is no volume it is the
// one that was made ahead, if that is there, or a new one of the size that the
// limits say. Its name is durable after syncName.
func (d *Driver) openVolume(v, ahead volume, l dormouse.Limits) error {
	if err := v.sound(); err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	if err := os.MkdirAll(v.at(), 0o700); err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	secured, err := d.mountVolume(v, ahead, l)
	if err == nil && !secured {
		err = d.secure(v)
	}
	if err == nil {
		err = v.forgetCopied()
	}
	if err != nil {
		return fmt.Errorf("open volume: %w", errors.Join(err, d.closeVolume(v)))
	}
	return v.furnish()
}

// furnish makes the directories that every volume has.
func (v volume) furnish() error {
	for _, dir := range []string{v.in("base"), v.home().Host()} {
		if err := filemode.MkdirAll(dir); err != nil {
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

// mountVolume reports whether the volume is backed already.
func (d *Driver) mountVolume(v, ahead volume, l dormouse.Limits) (secured bool, err error) {
	_, err = os.Stat(v.image())
	if errors.Is(err, fs.ErrNotExist) && empty(v.at()) {
		secured, err = d.makeVolume(v, ahead, l)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoVolumes):
		return true, v.noteOpened() // a plain directory
	case err != nil:
		return false, err
	}
	if err := v.noteMade(); err != nil {
		return false, err
	}
	there, err := mount.Is(v.at())
	if err != nil || there {
		return secured, err
	}
	return false, v.mount()
}

// syncName makes the volume's name durable: a power cut must not take a volume whose
// content was synced.
func (v volume) syncName() error {
	return errors.Join(atomicfile.SyncDir(v.dir), atomicfile.SyncDir(filepath.Dir(v.dir)))
}

// makeVolume makes a session's volume, or says that there can be none. The usual
// one was made ahead, and is backed then, or is a copy.
func (d *Driver) makeVolume(v, ahead volume, l dormouse.Limits) (secured bool, err error) {
	usual := l.Disk == d.opts.Limits.Disk && l.Inodes == d.opts.Limits.Inodes
	switch {
	case l.Disk == 0, usual && d.template == "":
		return false, errNoVolumes
	case usual:
		d.reserves.shut(ahead)
		err := os.Rename(ahead.image(), v.image())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, d.copyTemplate(v.image())
		case err != nil:
			return false, err
		}
		// It is open there, and stays so until the box goes.
		return true, mount.At(ahead.at(), v.at(), "volume", unix.MS_BIND, "")
	}
	return false, makeFileSystem(v.image(), l)
}

// show makes a session's files reachable if there are any.
func (v volume) show() (there bool, err error) {
	_, err = os.Stat(v.image())
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(v.at())
		return err == nil, nil
	}
	if err == nil {
		there, err = mount.Is(v.at())
	}
	if err == nil && !there {
		err = v.mount()
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
	there, err := mount.Is(v.at())
	if err != nil {
		return err
	}
	if !there {
		if err := v.forgetOpened(); err != nil {
			return err
		}
		return mount.UnmountAll(v.at())
	}
	wrong := v.sync() // it is noted if it failed, and told to who wants the files next
	if err := mount.UnmountAll(v.at()); err != nil || wrong != nil {
		return err
	}
	return v.noteSynced()
}

// noteSynced notes that a volume which others still have mounted was synced when it was
// closed: if the machine ends before they let go, its file system seems to have been in
// use.
func (v volume) noteSynced() error {
	dev, err := showing(v.image())
	if err != nil || dev == nil {
		return err
	}
	return errors.Join(dev.Close(), atomicfile.Write(v.copiedNote(), nil, 0o600))
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

// forgetOpened says that files in a plain directory are not in use any more. Those that
// were so when the machine ended were never closed, which stays noted until they are
// recovered.
func (v volume) forgetOpened() error {
	was, err := os.ReadFile(v.openedNote()) //nolint:gosec // a session id is a file name
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	now, wrong := boot.ID()
	if err := errors.Join(err, wrong); err != nil || string(was) != now {
		return err
	}
	if err := v.sync(); err != nil {
		return nil //nolint:nilerr // it is noted, and told to who wants the files next
	}
	return os.Remove(v.openedNote()) //nolint:gosec // as above
}

// sync makes the files durable. A sync that has failed is never believed again: what
// was to be written is dropped, and still seems to be there.
func (v volume) sync() error {
	if err := v.failed(); err != nil {
		return fmt.Errorf("sync volume: %w", err)
	}
	f, err := os.Open(v.at()) //nolint:gosec // a session id is a file name
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

// templateName is where the file system is that every usual volume begins as, empty
// if sizes are not limited.
func (d *Driver) templateName() (string, error) {
	l := d.opts.Limits
	if l.Disk == 0 {
		return "", nil
	}
	if _, err := volumeTool(); err != nil {
		return "", err
	}
	size, err := volumeSize(d.opts.Dir, l)
	return d.path(fmt.Sprintf("volume-%d-%d-ballast.img", size, l.Inodes)), err
}

// makeTemplate makes that file system, with as much ballast as it can have, unless it
// is there.
func (d *Driver) makeTemplate() (err error) {
	if _, err := os.Stat(d.template); d.template == "" || err == nil {
		return nil
	}
	dir, err := os.MkdirTemp(d.opts.Dir, "template-")
	if err != nil {
		return layer.Full(err)
	}
	v := volume{dir: dir}
	defer func() { err = layer.Full(errors.Join(err, v.close(), os.RemoveAll(dir))) }()
	if err := errors.Join(os.Mkdir(v.at(), 0o700), makeFileSystem(v.image(), d.opts.Limits)); err != nil {
		return err
	}
	if d.reserves.able {
		if err := v.addBallast(); err != nil {
			return err
		}
	}
	return os.Rename(v.image(), d.template)
}

// addBallast has the ballast of a volume that is not open hold what is free in it.
func (v volume) addBallast() error {
	if err := mountLoop(v.image(), v.at()); err != nil {
		return err
	}
	_, err := v.balance(restHeadroom, 0, 1)
	if err == nil {
		err = v.sync()
	}
	return errors.Join(err, v.close())
}

// copyTemplate makes a usual volume.
func (d *Driver) copyTemplate(to string) error {
	err := copySparse(d.template, to)
	if errors.Is(err, fs.ErrNotExist) { // there was no room for it when this server started
		if err = d.makeTemplate(); err == nil {
			err = copySparse(d.template, to)
		}
	}
	return layer.Full(err)
}

// volumeSize is that of a volume in a directory: what the limits say, and no more than
// the disk could ever hold, since its own tables grow with it.
func volumeSize(dir string, l dormouse.Limits) (int64, error) {
	on, err := diskOf(dir)
	const unit = 1 << 20
	return max(min(l.Disk, on.total/unit*unit), unit), err
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
	size, err := volumeSize(filepath.Dir(name), l)
	if err == nil {
		err = os.Truncate(tmp, size)
	}
	if err != nil {
		return err
	}
	args := []string{"-q", "-F", "-m", "0", "-J", "size=4", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"}
	if l.Inodes > 0 {
		const perInode = 4096 // no small volume is made of inodes alone
		args = append(args, "-N", strconv.FormatInt(min(int64(float64(l.Inodes)*float64(size)/float64(l.Disk)), size/perInode), 10))
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

// toolDirs are where programs are that only administrators use.
var toolDirs = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin", "/run/current-system/sw/bin"}

// findTool finds a program that may be where only administrators look.
func findTool(name string) (string, error) {
	for _, dir := range toolDirs {
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
	if err == nil {
		err = eachData(in, info.Size(), func(_, start, end int64) error {
			_, err := io.Copy(io.NewOffsetWriter(out, start), io.NewSectionReader(in, start, end-start))
			return err
		})
	}
	if err == nil {
		err = out.Sync() // what lies in it later is synced, and must lie in something
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", filepath.Base(from), errors.Join(err, os.Remove(to+".new")))
	}
	return os.Rename(to+".new", to)
}

// eachData goes through a file that has holes: what is between hole and start was
// never written, and what is between start and end is data, if that is anything.
func eachData(f *os.File, size int64, do func(hole, start, end int64) error) error {
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		end := size
		switch {
		case errors.Is(err, unix.ENXIO):
			start, err = size, nil
		case err == nil:
			end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		}
		if err == nil {
			err = do(at, start, end)
		}
		if err != nil {
			return err
		}
		at = end
	}
	return nil
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
	// Tables are not zeroed in the background: that would fill what is sparse. Nor are
	// freed blocks given back to the disk before somebody holds them: see ballastFile.
	return corrupt(mount.At(dev.Name(), at, "ext4", volumeFlags, "noinit_itable,nodiscard"))
}

// errUnreadable says that a file system is damaged beyond repair, or none.
var errUnreadable = errors.New("its file system cannot be read")

// corrupt tells the errors of a mount that are the file system's own from all others.
func corrupt(err error) error {
	for _, own := range []error{unix.EUCLEAN, unix.EBADMSG, unix.EINVAL} {
		if errors.Is(err, own) {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
	}
	return err
}

const volumeFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME

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
