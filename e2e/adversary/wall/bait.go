//go:build linux

package wall

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bait is what attacks try to make the server open on the host: a file, a directory and a
// socket. Any access to them is detected.
type bait struct {
	under             string // where all of it lies
	file, dir, socket string

	canary   canary
	listener net.Listener
	reached  atomic.Int64 // connections to the socket
	watch    *os.File
	names    map[int32]string // of what is watched
	before   map[string]string
}

// touches is all that can be done to a file, but for looking whether it is there.
const touches = unix.IN_OPEN | unix.IN_ACCESS | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE | unix.IN_MOVE_SELF

func layBait(dir string) (_ *bait, err error) {
	b := &bait{
		under: dir,
		file:  filepath.Join(dir, "key"), dir: filepath.Join(dir, "keys"), socket: filepath.Join(dir, "listener"),
		canary: newCanary("a file of the host"), names: make(map[int32]string),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	inner := filepath.Join(b.dir, "fence.json")
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, err
	}
	for _, name := range []string{b.file, inner, filepath.Join(b.dir, "log"), filepath.Join(b.dir, "secret")} {
		if err := os.WriteFile(name, b.canary.page(), 0o600); err != nil {
			return nil, err
		}
	}
	if b.listener, err = net.Listen("unix", b.socket); err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := b.listener.Accept()
			if err != nil {
				return
			}
			b.reached.Add(1)
			_, _ = c.Write(b.canary.page())
			_ = c.Close()
		}
	}()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	b.watch = os.NewFile(uintptr(fd), "inotify")
	for _, name := range []string{b.file, b.dir, inner, b.socket} {
		wd, err := unix.InotifyAddWatch(fd, name, touches)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", name, err)
		}
		b.names[int32(wd)] = filepath.Base(name)
	}
	return b, nil
}

// begin forgets what was done so far.
func (b *bait) begin() {
	_ = b.events()
	b.reached.Store(0)
	b.before = b.look()
}

// look says what each is like, without opening it.
func (b *bait) look() map[string]string {
	seen := make(map[string]string)
	for _, name := range []string{b.file, b.dir, b.socket} {
		var at unix.Stat_t
		if err := unix.Lstat(name, &at); err != nil {
			seen[name] = err.Error()
			continue
		}
		seen[name] = fmt.Sprint(at.Ino, at.Mode, at.Uid, at.Size, at.Ctim, at.Mtim)
	}
	return seen
}

// touched says what was done since begin.
func (b *bait) touched() (found []string) {
	found = b.events()
	if n := b.reached.Load(); n > 0 {
		found = append(found, fmt.Sprintf("%s was connected to %d times", filepath.Base(b.socket), n))
	}
	for name, now := range b.look() {
		if now != b.before[name] {
			found = append(found, fmt.Sprintf("%s was %s and is %s", filepath.Base(name), b.before[name], now))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// events reads what the kernel has noted.
func (b *bait) events() (found []string) {
	words := []struct {
		bit  uint32
		word string
	}{
		{unix.IN_OPEN, "opened"},
		{unix.IN_ACCESS, "read"},
		{unix.IN_MODIFY, "written"},
		{unix.IN_ATTRIB, "given other attributes"},
		{unix.IN_CREATE | unix.IN_MOVED_TO, "added to"},
		{unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, "removed from"},
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(int(b.watch.Fd()), buf)
		if err != nil || n < unix.SizeofInotifyEvent {
			slices.Sort(found)
			return slices.Compact(found)
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			name := bytes.TrimRight(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+int(e.Len)], "\x00")
			for _, w := range words {
				if e.Mask&w.bit != 0 {
					found = append(found, filepath.Join(b.names[e.Wd], string(name))+" was "+w.word)
				}
			}
			at += unix.SizeofInotifyEvent + int(e.Len)
		}
	}
}

func (b *bait) close() error {
	var errs []error
	if b.watch != nil {
		errs = append(errs, b.watch.Close())
	}
	if b.listener != nil {
		errs = append(errs, b.listener.Close())
	}
	return errors.Join(errs...)
}
