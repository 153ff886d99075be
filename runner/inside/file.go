package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/runner"
)

// resolve makes a path absolute; relative paths are below the workspace.
func (r *Runner) resolve(path string) (string, error) {
	if path == "" {
		return "", errors.New("path is empty")
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	return filepath.Join(r.opts.Workspace, path), nil
}

// openRegular opens a regular file for reading and refuses anything else.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	// Checked before it is opened, because opening a device can have side effects.
	at, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(path, at); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if at, err = f.Stat(); err == nil {
		err = regular(path, at)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, at, nil
}

func regular(path string, at fs.FileInfo) error {
	switch {
	case at.IsDir():
		return fmt.Errorf("%s is a directory", path)
	case !at.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	}
	return nil
}

// write replaces or creates a file atomically.
func (r *Runner) write(id dormouse.OpID, w runner.Write) runner.Result {
	if err := r.writeFile(id, w); err != nil {
		return runner.Result{Error: err.Error()}
	}
	return runner.Result{Size: int64(len(w.Content))}
}

func (r *Runner) writeFile(id dormouse.OpID, w runner.Write) error {
	path, err := r.resolve(w.Path)
	if err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays a link, to a new file
	}
	mode, uid, gid := fs.FileMode(0o644), -1, -1
	if at, err := os.Stat(path); err == nil {
		if err := regular(path, at); err != nil {
			return err
		}
		mode = at.Mode().Perm()
		if sys, ok := at.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(sys.Uid), int(sys.Gid)
		}
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as mkdir makes them
		return err
	}
	tmp := filepath.Join(dir, ".dormouse-"+string(id))
	if err := writeSynced(tmp, w.Content, mode, uid, gid); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

func writeSynced(name string, b []byte, mode fs.FileMode, uid, gid int) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && uid >= 0 {
		_ = f.Chown(uid, gid) // only root can, and then it should
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
