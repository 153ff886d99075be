package rig

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// Witness sees what commands and file writes really did, outside the server.
type Witness struct {
	// Dir is where commands write, as they see it.
	Dir string
	// Inside says that this is the workspace: an effect that is missing there was lost.
	Inside bool

	files, lines string          // below Dir: where files are counted, and what commands append to
	places       func() []string // where Dir is on this machine
	seeks        bool            // places come and go
	inotify      *os.File
	stop         chan struct{}
	watching     sync.WaitGroup

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
	w := &Witness{Dir: dir, files: "files", lines: "lines", places: func() []string { return []string{dir} }}
	return w, w.begin()
}

// layersDir is where what was captured of workspaces lies.
const layersDir = "layers"

// NewWitnessInside watches the workspaces of gVisor sandboxes, which can write
// nowhere else. Their volumes must be plain directories: those are there for this
// machine to see whether anything runs in them or not. What was sealed is in layers.
func NewWitnessInside(data string) (*Witness, error) {
	volumes := filepath.Join(data, "sandbox", GVisor, "sessions", "*", "volume")
	w := &Witness{Dir: "/workspace", Inside: true, lines: ".world", seeks: true, places: func() (dirs []string) {
		for _, pattern := range []string{
			filepath.Join(volumes, "upper"), filepath.Join(volumes, "ws", "*", "upper"), filepath.Join(data, "snapshots", layersDir, "*"),
		} {
			found, _ := filepath.Glob(pattern) // the pattern is a good one
			dirs = append(dirs, found...)
		}
		return dirs
	}}
	return w, w.begin()
}

// NewWitnessOfCopies looks at copies of workspaces, each in a directory of its
// own below dir. They are made when all is over.
func NewWitnessOfCopies(dir string) (*Witness, error) {
	w := &Witness{Dir: "/workspace", Inside: true, lines: ".world", places: func() []string {
		dirs, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is a good one
		return dirs
	}}
	return w, w.begin()
}

func (w *Witness) begin() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	w.inotify, w.stop, w.writes = os.NewFile(uintptr(fd), "inotify"), make(chan struct{}), make(map[string]int)
	if err := w.find(fd); err != nil {
		return err
	}
	w.watching.Go(w.watch)
	if w.seeks {
		w.watching.Go(func() { w.seek(fd) })
	}
	return nil
}

// find watches every place that is there. One that is watched already is watched
// once.
func (w *Witness) find(fd int) error {
	// The runner writes beside the file and renames: a rename is the effect. A
	// writer that does it in place would be seen when it closes.
	const mask = unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE
	for _, dir := range w.places() {
		if _, err := unix.InotifyAddWatch(fd, filepath.Join(dir, w.files), mask); err != nil {
			return fmt.Errorf("watch files: %w", err)
		}
	}
	return nil
}

// seek watches workspaces as they come, which is long before anything runs in
// them.
func (w *Witness) seek(fd int) {
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(5 * time.Millisecond):
			_ = w.find(fd) // what went away meanwhile is not watched
		}
	}
}

// Close stops watching.
func (w *Witness) Close() {
	close(w.stop)
	_ = w.inotify.SetReadDeadline(time.Now())
	w.watching.Wait()
	_ = w.inotify.Close()
}

func (w *Witness) watch() {
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
			if name == "" || strings.HasPrefix(name, ".") {
				continue // not in place yet
			}
			w.writes[name]++
		}
		w.mu.Unlock()
	}
}

// Writes says how often each file was put in place, and when. The time is the
// file system's own: it does not depend on when this process got to run. Layers are
// looked at where there is nothing else: there may be copies in them, which keep
// when a file was written and not when it was put in place. A file that was there and
// is gone was not written.
func (w *Witness) Writes() (map[string]Written, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes := make(map[string]Written, len(w.writes))
	for name, n := range w.writes {
		for _, dir := range w.places() {
			layer := filepath.Base(filepath.Dir(dir)) == layersDir
			if layer && writes[name].Times > 0 {
				continue
			}
			var at unix.Stat_t
			err := unix.Stat(filepath.Join(dir, w.files, name), &at)
			switch {
			case err == nil && layer:
				writes[name] = Written{Times: n, At: time.Unix(at.Mtim.Unix()).UTC()}
			case err == nil:
				writes[name] = Written{Times: n, At: time.Unix(at.Ctim.Unix()).UTC()}
			case !w.Inside || !errors.Is(err, fs.ErrNotExist):
				return nil, fmt.Errorf("look at %s: %w", name, err)
			}
		}
	}
	return writes, nil
}

// File is the path of a file whose writes are counted.
func (w *Witness) File(name string) string { return filepath.Join(w.Dir, w.files, name) }

// Lines is the file that commands append to.
func (w *Witness) Lines() string { return filepath.Join(w.Dir, w.lines) }

// Mark is a shell command that leaves one line: which op ran it, and when.
func (w *Witness) Mark(nonce, mark string) string {
	return fmt.Sprintf(`printf '%%s %s %s %%s\n' "$DORMOUSE_OP" "$EPOCHREALTIME" >> %s`, nonce, mark, w.Lines())
}

// Effects reads what commands left. A line that lies in several places, as it does
// when a workspace is captured, was left once: it says when.
func (w *Witness) Effects() ([]Effect, error) {
	var all []Effect
	seen := make(map[string]bool)
	for _, dir := range w.places() {
		b, err := os.ReadFile(filepath.Join(dir, w.lines))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var here []string
		for line := range strings.Lines(string(b)) {
			if here = append(here, line); seen[line] {
				continue
			}
			e, err := parseEffect(line)
			if err != nil {
				return nil, fmt.Errorf("effect %q cannot be read: %w", line, err)
			}
			all = append(all, e)
		}
		for _, line := range here {
			seen[line] = true
		}
	}
	return all, nil
}

func parseEffect(line string) (Effect, error) {
	f := strings.Fields(line)
	if len(f) != 4 {
		return Effect{}, fmt.Errorf("it has %d words", len(f))
	}
	seconds, micros, _ := strings.Cut(f[3], ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Effect{}, err
	}
	us, err := strconv.ParseInt(micros, 10, 64)
	return Effect{Op: dormouse.OpID(f[0]), Nonce: f[1], Mark: f[2], At: time.Unix(s, us*1000).UTC()}, err
}
