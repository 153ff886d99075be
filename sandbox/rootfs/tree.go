//go:build linux

package rootfs

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxPath  = 4096
	maxDepth = 256 // of directories; removing a tree holds one descriptor for each
)

// tree is a root file system being made. Names in it are resolved by the kernel
// as if its root were that of the machine: a link, absolute or not, leads to
// somewhere inside.
type tree struct {
	root *os.File
	path string // of root, as the kernel spells it
	// spend is called for each name before it is made.
	spend func() error
}

// openTree makes and opens an empty tree.
func openTree(dir string, spend func() error) (*tree, error) {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as seen inside; nobody outside gets this far
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	at, err := os.Readlink(descriptor(f))
	if err == nil {
		err = f.Chmod(0o755)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &tree{root: f, path: at, spend: spend}, nil
}

func (t *tree) close() error { return t.root.Close() }

func descriptor(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// open opens a directory of the tree that exists.
func (t *tree) open(name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(int(t.root.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue // something was renamed somewhere on this machine meanwhile
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
}

// place is a name in a directory of the tree, whether or not anything has it.
type place struct {
	dir  *os.File
	in   string // where dir is in the tree once all links are followed
	name string
	time unix.Timespec // of dir, which what is done to its names must not change
}

// find returns the place of a name in a directory that exists.
func (t *tree) find(name string) (place, error) {
	dir, err := t.open(path.Dir(name))
	if err != nil {
		return place{}, err
	}
	p := place{dir: dir, name: path.Base(name)}
	if err := t.locate(&p); err != nil {
		return place{}, errors.Join(err, dir.Close())
	}
	return p, nil
}

func (t *tree) locate(p *place) error {
	at, err := os.Readlink(descriptor(p.dir))
	if err != nil {
		return err
	}
	in, ok := strings.CutPrefix(at+"/", t.path+"/")
	if !ok {
		return fmt.Errorf("%.200q lies outside", at)
	}
	if strings.Count(in, "/") >= maxDepth {
		return errors.New("it lies too deep")
	}
	p.in = in
	var s unix.Stat_t
	if err := unix.Fstat(int(p.dir.Fd()), &s); err != nil {
		return err
	}
	p.time = s.Mtim
	return nil
}

// make returns the place of a name, and makes the directories it is in.
func (t *tree) make(name string) (place, error) {
	p, err := t.find(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	dir := path.Dir(name)
	up, err := t.make(dir)
	if err != nil {
		return place{}, err
	}
	if err := t.spend(); err != nil {
		return place{}, errors.Join(err, up.close())
	}
	f, err := up.mkdir()
	if err != nil {
		return place{}, errors.Join(fmt.Errorf("make %.200q: %w", dir, err), up.close())
	}
	if err := errors.Join(f.Chmod(0o755), f.Close(), up.close()); err != nil {
		return place{}, err
	}
	return t.find(name)
}

// close gives the directory back the time it had.
func (p place) close() error {
	keep := unix.Timespec{Nsec: unix.UTIME_OMIT}
	err := unix.UtimesNanoAt(int(p.dir.Fd()), ".", []unix.Timespec{keep, p.time}, 0)
	return errors.Join(err, p.dir.Close())
}

// path is the place's own name in the tree.
func (p place) path() string { return p.in + p.name }

// child is the place of a name in the directory that this place has.
func (p place) child(dir *os.File, name string) place {
	return place{dir: dir, in: p.path() + "/", name: name}
}

// openDir opens the directory that has the name, and no link to one.
func (p place) openDir() (*os.File, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.name), nil
}

func (p place) mkdir() (*os.File, error) {
	if err := unix.Mkdirat(int(p.dir.Fd()), p.name, 0o700); err != nil {
		return nil, err
	}
	return p.openDir()
}

// create makes an empty file. It does not open one that exists, nor follow a
// link.
func (p place) create() (*os.File, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.name), nil
}

// replace makes something under the name and removes what else has it.
func (p place) replace(mk func() error) error {
	err := mk()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := p.remove(); err != nil {
		return err
	}
	return mk()
}

// remove removes whatever has the name.
func (p place) remove() error {
	err := unix.Unlinkat(int(p.dir.Fd()), p.name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return ignoreNotExist(err)
	}
	err = p.each(place.remove)
	if err == nil {
		err = unix.Unlinkat(int(p.dir.Fd()), p.name, unix.AT_REMOVEDIR)
	}
	return ignoreNotExist(err)
}

// each calls do for each name in the directory that this place has.
func (p place) each(do func(place) error) error {
	dir, err := p.openDir()
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if err == nil {
			err = do(p.child(dir, name))
		}
	}
	return errors.Join(err, dir.Close())
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// permissions are the bits of a mode that a file keeps.
const permissions = 0o7777

// own gives an open file the owner and the mode of an entry. The mode comes last,
// since a change of owner takes set-user-ID away.
func own(f *os.File, h *tar.Header) error {
	uid, gid, err := owner(h)
	if err != nil {
		return err
	}
	if err := unix.Fchown(int(f.Fd()), uid, gid); err != nil {
		return fmt.Errorf("change its owner: %w", err)
	}
	return unix.Fchmod(int(f.Fd()), uint32(h.Mode&permissions))
}

func owner(h *tar.Header) (uid, gid int, err error) {
	const highest = 1<<32 - 2 // the one above means nobody at all
	if h.Uid < 0 || h.Uid > highest || h.Gid < 0 || h.Gid > highest {
		return 0, 0, fmt.Errorf("there is no owner %d:%d", h.Uid, h.Gid)
	}
	return h.Uid, h.Gid, nil
}

// stamp gives what has the name a time. A link is not followed.
func (p place) stamp(at time.Time) error {
	t, err := unix.TimeToTimespec(at)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(int(p.dir.Fd()), p.name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}
