//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/internal/beneath"
)

// maxDepth is how deep directories of a root file system may lie in each other: removing
// a tree holds one descriptor for each.
const maxDepth = 256

// place is a name in a directory of a root file system, whether or not anything has it.
type place struct {
	dir  beneath.Dir
	in   string // where dir is in the root file system once all links are followed
	name string
	time unix.Timespec // of dir, which changes of its names must not change
}

// find returns the place of a path in a directory that exists. The kernel resolves the
// directory as if the root were that of the machine: a link, absolute or not, leads to
// somewhere inside.
func (r *RootFS) find(at string) (place, error) {
	dir, err := r.root.InRoot(path.Dir(at))
	if err != nil {
		return place{}, err
	}
	p := place{dir: dir, name: path.Base(at)}
	if err := r.locate(&p); err != nil {
		return place{}, errors.Join(err, dir.Close())
	}
	return p, nil
}

// locate finds out where the directory of a place is.
func (r *RootFS) locate(p *place) error {
	at, err := p.dir.Path()
	if err != nil {
		return err
	}
	in, ok := strings.CutPrefix(at+"/", r.path+"/")
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

// reach returns the place of a path, and makes the directories that it is in.
func (r *RootFS) reach(at string) (place, error) {
	p, err := r.find(at)
	if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	dir := path.Dir(at)
	up, err := r.reach(dir)
	if err != nil {
		return place{}, err
	}
	if err := r.all.count(); err != nil {
		return place{}, errors.Join(err, up.release())
	}
	err = up.mkdir()
	if err == nil {
		err = unix.Fchmodat(int(up.dir.Fd()), up.name, 0o755, 0)
	}
	if err != nil {
		return place{}, errors.Join(fmt.Errorf("make %.200q: %w", dir, err), up.release())
	}
	if err := up.release(); err != nil {
		return place{}, err
	}
	return r.find(at)
}

// release gives the directory back the time it had.
func (p place) release() error {
	keep := unix.Timespec{Nsec: unix.UTIME_OMIT}
	err := unix.UtimesNanoAt(int(p.dir.Fd()), ".", []unix.Timespec{keep, p.time}, 0)
	return errors.Join(err, p.dir.Close())
}

// path is the place's own path in the root file system.
func (p place) path() string { return p.in + p.name }

// openDir opens the directory that has the name, and no link to one.
func (p place) openDir() (beneath.Dir, error) { return p.dir.Dir(p.name) }

func (p place) mkdir() error { return unix.Mkdirat(int(p.dir.Fd()), p.name, 0o700) }

// create makes an empty file. It does not open one that exists, nor follow a link.
func (p place) create() (*os.File, error) {
	return p.dir.At(p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
}

// setMetadata gives what has the name the owner, mode and time of an entry.
func (p place) setMetadata(e Entry) error {
	if err := setOwnerAt(int(p.dir.Fd()), p.name, e); err != nil {
		return err
	}
	return setTimeAt(int(p.dir.Fd()), p.name, e)
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
	if errors.Is(err, unix.EISDIR) {
		if err = p.each(place.remove); err == nil {
			err = unix.Unlinkat(int(p.dir.Fd()), p.name, unix.AT_REMOVEDIR)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
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
			err = do(place{dir: dir, in: p.path() + "/", name: name})
		}
	}
	return errors.Join(err, dir.Close())
}
