package rig

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// Witness sees what commands and file writes really did, outside the server and
// outside the workspace.
type Witness struct {
	Dir string

	inotify *os.File
	done    chan struct{}

	mu     sync.Mutex
	writes map[string]int // guarded by mu; renames into place by name
}

// Written is what was seen of one file.
type Written struct {
	// Times is how often it was put in place, At when that last was.
	Times int
	At    time.Time
}

// Effect is one line that a command left.
type Effect struct {
	Op    dormouse.OpID
	Nonce string
	// Mark tells the effects of one command apart: begin and end.
	Mark string
	At   time.Time
}

// NewWitness watches dir, which it makes.
func NewWitness(dir string) (*Witness, error) {
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o755); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	w := &Witness{
		Dir: dir, inotify: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		writes: make(map[string]int),
	}
	// The runner writes beside the file and renames: a rename is the effect. A
	// writer that does it in place would be seen when it closes.
	const mask = unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE
	if _, err := unix.InotifyAddWatch(fd, filepath.Join(dir, "files"), mask); err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	go w.watch()
	return w, nil
}

// Close stops watching.
func (w *Witness) Close() {
	_ = w.inotify.Close()
	<-w.done
}

func (w *Witness) watch() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			size := int(binary.NativeEndian.Uint32(buf[at+12:]))
			name := string(bytes.TrimRight(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+size], "\x00"))
			at += unix.SizeofInotifyEvent + size
			if strings.HasPrefix(name, ".") {
				continue // not in place yet
			}
			w.writes[name]++
		}
		w.mu.Unlock()
	}
}

// Writes says how often each file was put in place, and when. The time is the
// file system's own: it does not depend on when this process got to run.
func (w *Witness) Writes() (map[string]Written, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes := make(map[string]Written, len(w.writes))
	for name, n := range w.writes {
		var at unix.Stat_t
		if err := unix.Stat(w.File(name), &at); err != nil {
			return nil, fmt.Errorf("look at %s: %w", name, err)
		}
		writes[name] = Written{Times: n, At: time.Unix(at.Ctim.Unix()).UTC()}
	}
	return writes, nil
}

// File is the path of a file whose writes are counted.
func (w *Witness) File(name string) string { return filepath.Join(w.Dir, "files", name) }

// Lines is the file that commands append to.
func (w *Witness) Lines() string { return filepath.Join(w.Dir, "lines") }

// Mark is a shell command that leaves one line: which op ran it, and when.
func (w *Witness) Mark(nonce, mark string) string {
	return fmt.Sprintf(`printf '%%s %s %s %%s\n' "$DORMOUSE_OP" "$EPOCHREALTIME" >> %s`, nonce, mark, w.Lines())
}

// Effects reads what commands left.
func (w *Witness) Effects() ([]Effect, error) {
	b, err := os.ReadFile(w.Lines())
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var effects []Effect
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			return nil, fmt.Errorf("effect %q cannot be read", line)
		}
		seconds, micros, _ := strings.Cut(f[3], ".")
		s, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("effect %q cannot be read: %w", line, err)
		}
		us, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("effect %q cannot be read: %w", line, err)
		}
		effects = append(effects, Effect{Op: dormouse.OpID(f[0]), Nonce: f[1], Mark: f[2], At: time.Unix(s, us*1000).UTC()})
	}
	return effects, nil
}
