package inside

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse/runner"
)

const (
	// inDir is the inotify mask of a directory: changes in it, and its own removal.
	inDir = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM |
		unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_EXCL_UNLINK

	// maxPendingChanges bounds the changes that are not sent yet.
	maxPendingChanges = 8192
	// watchBuffer is the size of the buffer for inotify events.
	watchBuffer = 64 << 10
)

// watcher reports changes below a path.
type watcher struct {
	file      *os.File // of inotify
	top       string
	recursive bool
	limit     int
	paths     map[int32]string // watched directories by descriptor, relative to top
	marks     map[string]int32 // the inverse of paths
	full      bool             // an overflow was reported because of limit
	out       []runner.Change
}

// watch starts to watch; it reports changes from now on.
func (r *Runner) watch(what runner.Watch) (endpoint, error) {
	top, err := r.resolve(what.Path)
	if err != nil {
		return nil, err
	}
	return newWatcher(top, what.Recursive, runner.MaxWatched)
}

func newWatcher(top string, recursive bool, limit int) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	w := &watcher{
		file:      os.NewFile(uintptr(fd), "inotify"),
		top:       top,
		recursive: recursive,
		limit:     limit,
		paths:     make(map[int32]string),
		marks:     make(map[string]int32),
	}
	if err := w.add("."); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", top, err), w.file.Close())
	}
	if recursive {
		w.addBelow(".", false)
	}
	return w, nil
}

func (w *watcher) release() { _ = w.file.Close() }

// add starts to watch the directory at name.
func (w *watcher) add(name string) error {
	if len(w.paths) >= w.limit {
		w.overflow()
		return nil
	}
	flags := uint32(inDir)
	if name != "." {
		flags |= unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	}
	var mark int
	err := w.control(func(fd int) (err error) {
		mark, err = unix.InotifyAddWatch(fd, filepath.Join(w.top, name), flags)
		return err
	})
	if errors.Is(err, unix.ENOSPC) { // the kernel's own bound
		w.overflow()
		return nil
	}
	if err != nil {
		return err
	}
	wd := int32(mark) //nolint:gosec // it was an int32 before
	if before, ok := w.paths[wd]; ok {
		delete(w.marks, before) // it was moved here
	}
	w.paths[wd], w.marks[name] = name, wd
	return nil
}

// addBelow starts to watch the directories below name. Entries of a new directory were
// created before it was watched, and are reported.
func (w *watcher) addBelow(name string, isNew bool) {
	entries, err := os.ReadDir(filepath.Join(w.top, name))
	if err != nil {
		return // it is no directory, or was removed
	}
	for _, e := range entries {
		below := path.Join(name, e.Name())
		if isNew {
			w.emit(runner.Change{Path: below, Op: runner.Created})
		}
		if !w.recursive || !e.IsDir() || w.full {
			continue
		}
		if w.add(below) == nil {
			w.addBelow(below, isNew)
		}
	}
}

// forget stops watching name and all below it, which has moved away.
func (w *watcher) forget(name string) {
	for below, wd := range w.marks {
		if below == name || strings.HasPrefix(below, name+"/") {
			_ = w.control(func(fd int) error {
				_, err := unix.InotifyRmWatch(fd, uint32(wd)) //nolint:gosec // it is positive
				return err
			})
			delete(w.marks, below)
			delete(w.paths, wd)
		}
	}
}

func (w *watcher) control(do func(fd int) error) error {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}

func (w *watcher) overflow() {
	if !w.full {
		w.emit(runner.Change{Overflow: true})
	}
	w.full = true
}

// emit adds c to the changes to send, unless it repeats the last one. If there are too
// many, it adds an overflow.
func (w *watcher) emit(c runner.Change) {
	if len(w.out) >= maxPendingChanges {
		c = runner.Change{Overflow: true}
	}
	if n := len(w.out); n == 0 || w.out[n-1] != c {
		w.out = append(w.out, c)
	}
}

func (w *watcher) serve(ctx context.Context, c *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() })
	defer stop()
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		discard(c)
		_ = w.file.Close()
	})
	defer func() { _ = c.Close() }()
	lines := bufio.NewWriter(c)
	enc := json.NewEncoder(lines)
	buf := make([]byte, watchBuffer)
	for over := false; ; {
		for _, change := range w.out {
			if enc.Encode(change) != nil {
				return
			}
		}
		w.out = w.out[:0]
		if lines.Flush() != nil || over {
			return
		}
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		over = w.read(buf[:n])
	}
}

// read handles inotify events, and reports whether the top is gone.
func (w *watcher) read(b []byte) (over bool) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b)) //nolint:gosec // as it was written
		mask := binary.NativeEndian.Uint32(b[4:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return over
		}
		name, _, _ := bytes.Cut(b[:size], []byte{0})
		b = b[size:]
		over = w.handleEvent(wd, mask, string(name)) || over
	}
	return over
}

// handleEvent handles one event, and reports whether the top is gone.
func (w *watcher) handleEvent(wd int32, mask uint32, name string) bool {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.emit(runner.Change{Overflow: true})
		return false
	}
	dir, ok := w.paths[wd]
	if !ok {
		return false // of a directory that has moved away
	}
	at := path.Join(dir, name)
	switch {
	case mask&unix.IN_IGNORED != 0:
		delete(w.paths, wd)
		if w.marks[dir] == wd {
			delete(w.marks, dir)
		}
		return false
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
		if dir == "." {
			w.emit(runner.Change{Path: ".", Op: runner.Removed})
		}
		return dir == "." // for others the parent reports it
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		if mask&unix.IN_ISDIR != 0 {
			w.forget(at)
		}
		w.emit(runner.Change{Path: at, Op: runner.Removed})
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.emit(runner.Change{Path: at, Op: runner.Created})
		if mask&unix.IN_ISDIR != 0 && w.recursive && w.add(at) == nil {
			w.addBelow(at, true)
		}
	case mask&unix.IN_MODIFY != 0:
		w.emit(runner.Change{Path: at, Op: runner.Written})
	case mask&unix.IN_ATTRIB != 0 && (name != "" || dir == "."):
		// A watched file that is unlinked causes only this event.
		if _, err := os.Lstat(filepath.Join(w.top, at)); at == "." && errors.Is(err, fs.ErrNotExist) {
			w.emit(runner.Change{Path: ".", Op: runner.Removed})
			return true
		}
		w.emit(runner.Change{Path: at, Op: runner.Modified})
	}
	return false
}
