//go:build linux

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dormouse-run/dormouse/snapshot/layer"
)

// templatePrefix begins the name of a directory in which the template is made.
const templatePrefix = "template-"

// templateName is the file that default volumes are copied from, empty if sizes are not
// limited.
func (s *Store) templateName() (string, error) {
	l := s.limits
	if l.Disk == 0 {
		return "", nil
	}
	if _, err := volumeTool(); err != nil {
		return "", err
	}
	size, err := volumeSize(s.dir, l)
	return filepath.Join(s.dir, fmt.Sprintf("volume-%d-%d-ballast.img", size, l.Inodes)), err
}

// makeTemplate creates the template, with as much ballast as it can have, unless it
// exists.
func (s *Store) makeTemplate() (err error) {
	if _, err := os.Stat(s.template); s.template == "" || err == nil {
		return nil
	}
	dir, err := os.MkdirTemp(s.dir, templatePrefix)
	if err != nil {
		return layer.Full(err)
	}
	v := Volume{Dir: dir}
	defer func() { err = layer.Full(errors.Join(err, v.Close(), os.RemoveAll(dir))) }()
	if err := errors.Join(os.Mkdir(v.Mountpoint(), 0o700), makeFileSystem(v.Image(), s.limits)); err != nil {
		return err
	}
	if s.balancer.supported {
		if err := v.addBallast(); err != nil {
			return err
		}
	}
	return os.Rename(v.Image(), s.template)
}

// addBallast has the ballast of a closed volume hold its free blocks.
func (v Volume) addBallast() error {
	if err := mountLoop(v.Image(), v.Mountpoint()); err != nil {
		return err
	}
	_, err := v.balance(restHeadroom, 0, 1)
	if err == nil {
		err = v.Sync()
	}
	return errors.Join(err, v.Close())
}

// copyTemplate creates a default volume.
func (s *Store) copyTemplate(to string) error {
	if err := checkRoom(filepath.Dir(to)); err != nil {
		return err
	}
	err := copySparse(s.template, to)
	if errors.Is(err, fs.ErrNotExist) { // the disk was full when this server started
		if err = s.makeTemplate(); err == nil {
			err = copySparse(s.template, to)
		}
	}
	return layer.Full(err)
}
