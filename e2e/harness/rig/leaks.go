package rig

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// Leaks is resources of gVisor sandboxes that belong to no session.
type Leaks struct{ Processes, Mounts, Sockets, Dirs []string }

func (l Leaks) String() string {
	return fmt.Sprintf("leaks: processes=%d mounts=%d sockets=%d dirs=%d", len(l.Processes), len(l.Mounts), len(l.Sockets), len(l.Dirs))
}

// None reports whether there are none.
func (l Leaks) None() bool { return len(l.All()) == 0 }

// All lists everything.
func (l Leaks) All() []string { return slices.Concat(l.Processes, l.Mounts, l.Sockets, l.Dirs) }

// And is what was found at either of two times.
func (l Leaks) And(more Leaks) Leaks {
	return Leaks{
		slices.Concat(l.Processes, more.Processes), slices.Concat(l.Mounts, more.Mounts),
		slices.Concat(l.Sockets, more.Sockets), slices.Concat(l.Dirs, more.Dirs),
	}
}

// owners says what may be there.
type owners struct {
	serving bool // a server is there, with its spares
	boxes   map[string]bool
	awake   map[dormouse.SessionID]bool
	asleep  map[dormouse.SessionID]bool
}

// used reports whether the places that all sandboxes share are needed.
func (o owners) used() bool { return o.serving || len(o.awake) > 0 }

// owns reports whether a path, or a command line, names something of an existing
// session.
func (o owners) owns(path string) bool {
	for box := range o.boxes {
		if strings.Contains(path, box) {
			return true
		}
	}
	for id := range o.awake {
		if strings.Contains(path, string(id)) {
			return true
		}
	}
	return false
}

// Leaks counts what there is on this machine of the sandboxes of a data directory
// beside those of the sessions that are awake, the files of those that are
// asleep, and the spares and the place of a server that is serving.
func (s *Server) Leaks(serving bool, awake, asleep []dormouse.SessionID) (l Leaks, err error) {
	o := owners{
		serving: serving, boxes: make(map[string]bool),
		awake: make(map[dormouse.SessionID]bool), asleep: make(map[dormouse.SessionID]bool),
	}
	for _, id := range asleep {
		o.asleep[id] = true
	}
	for _, id := range awake {
		o.awake[id] = true
		o.boxes[s.boxOf(id)] = true
	}
	delete(o.boxes, "")
	spares, _ := filepath.Glob(filepath.Join(s.boxesDir(), ".sbx_*")) // the pattern is a good one
	for _, hold := range spares {
		if serving && locked(hold) {
			o.boxes[strings.TrimPrefix(filepath.Base(hold), ".")] = true
		}
	}
	l.Processes = s.strayProcesses(o)
	if l.Mounts, err = s.strayMounts(o); err != nil {
		return l, err
	}
	if l.Sockets, err = s.straySockets(o); err != nil {
		return l, err
	}
	l.Dirs = slices.Concat(s.strayDirs(o), s.strayNotes(o), s.strayLimits(o))
	return l, nil
}

func (s *Server) gvisorDir() string { return filepath.Join(s.Data, "sandbox", GVisor) }
func (s *Server) boxesDir() string  { return filepath.Join(s.gvisorDir(), "boxes") }

// boxOf is the sandbox that a session has, empty if it has none.
func (s *Server) boxOf(id dormouse.SessionID) string {
	var record struct {
		Box string `json:"box"`
	}
	b, err := os.ReadFile(filepath.Join(s.gvisorDir(), "sessions", string(id), "box.json"))
	if err != nil || json.Unmarshal(b, &record) != nil {
		return ""
	}
	return record.Box
}

// strayProcesses finds kernels and file servers by their command lines, what they
// started by the limits it is under, and whatever was started from the directory.
func (s *Server) strayProcesses(o owners) []string {
	found := make(map[int]string)
	each(func(pid int) {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		exe, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if err == nil && (s.owns(pid) && !o.owns(string(line)) || strings.HasPrefix(exe, s.Data+"/")) {
			found[pid] = fmt.Sprintf("process %d: %s", pid, strings.ReplaceAll(string(line), "\x00", " "))
		}
	})
	for _, dir := range s.limits() {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil && found[pid] == "" && !o.owns(dir) {
				found[pid] = fmt.Sprintf("process %d in %s", pid, dir)
			}
		}
	}
	var all []string
	for _, text := range found {
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// strayMounts finds what is mounted, and what is ready to be: loop devices.
func (s *Server) strayMounts(o owners) ([]string, error) {
	var found []string
	for _, dir := range []string{s.Data, s.notes()} {
		mounts, err := mountsUnder(dir)
		if err != nil {
			return nil, err
		}
		for _, at := range mounts {
			place := at == s.gvisorDir() || at == filepath.Join(s.notes(), "null-netns") || strings.HasPrefix(at, filepath.Join(s.gvisorDir(), "root")+"/")
			if place && o.used() || o.owns(at) {
				continue
			}
			found = append(found, "mount "+at)
		}
	}
	for _, file := range s.Loops() {
		// A kernel holds on to what was mounted when it began, until it ends.
		if !o.used() && !o.owns(file) {
			found = append(found, "loop device of "+file)
		}
	}
	return found, nil
}

// Loops lists the files of the data directory that loop devices show, once for
// each device.
func (s *Server) Loops() []string {
	var found []string
	devices, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is a good one
	for _, name := range devices {
		b, _ := os.ReadFile(name) // one that went away shows nothing
		if file := strings.TrimSpace(string(b)); strings.HasPrefix(file, s.Data+"/") {
			found = append(found, file)
		}
	}
	return found
}

// straySockets finds sockets with a listener, and those without.
func (s *Server) straySockets(o owners) ([]string, error) {
	found := make(map[string]bool)
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		const path = 7
		fields := strings.Fields(line)
		if len(fields) <= path {
			continue
		}
		// A server closes what it failed to hand to a kernel in its own time.
		if _, err := os.Lstat(fields[path]); err == nil || !o.serving {
			found[fields[path]] = true
		}
	}
	for _, dir := range []string{s.gvisorDir(), s.notes()} {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type() == fs.ModeSocket {
				found[path] = true
			}
			if err == nil && e.IsDir() && (e.Name() == "volume" || e.Name() == "root" || e.Name() == "slot") {
				return fs.SkipDir // files of sessions are their own
			}
			return nil // what went away meanwhile is no leak
		})
	}
	var all []string
	for path := range found {
		if (strings.HasPrefix(path, s.gvisorDir()+"/") || strings.HasPrefix(path, s.notes()+"/")) && !o.owns(path) {
			all = append(all, "socket "+path)
		}
	}
	slices.Sort(all)
	return all, nil
}

// strayDirs finds boxes without an owner, files of sessions that are no more, and
// what a session that sleeps does not need.
func (s *Server) strayDirs(o owners) []string {
	var found []string
	boxes, _ := os.ReadDir(s.boxesDir()) // none is none
	for _, e := range boxes {
		if !o.owns(e.Name()) {
			found = append(found, filepath.Join(s.boxesDir(), e.Name()))
		}
	}
	lost, _ := os.ReadDir(filepath.Join(s.gvisorDir(), "lost"))
	for _, e := range lost {
		found = append(found, filepath.Join(s.gvisorDir(), "lost", e.Name()))
	}
	sessions := filepath.Join(s.gvisorDir(), "sessions")
	known, _ := os.ReadDir(sessions)
	for _, e := range known {
		id := dormouse.SessionID(e.Name())
		if !o.awake[id] && !o.asleep[id] {
			found = append(found, filepath.Join(sessions, e.Name()))
			continue
		}
		parts, _ := os.ReadDir(filepath.Join(sessions, e.Name()))
		for _, part := range parts {
			switch part.Name() {
			case "volume", "volume.img", "workspace", "marks", "made", "copied", "clearing", "packages": // the files, and what is noted of them
				continue
			case "waking": // the note that a wake was never finished
				if inside, err := os.ReadDir(filepath.Join(sessions, e.Name(), part.Name())); err == nil && len(inside) == 0 {
					continue
				}
			case "image":
				if o.asleep[id] {
					continue
				}
			case "box.json":
				if o.awake[id] {
					continue
				}
			default: // a file whose writer may live as far as anybody knows: it is swept an hour later
				if at, err := part.Info(); err == nil && strings.HasPrefix(part.Name(), ".tmp-") && time.Since(at.ModTime()) < time.Hour {
					continue
				}
			}
			found = append(found, filepath.Join(sessions, e.Name(), part.Name()))
		}
	}
	return found
}

// strayNotes finds what gVisor noted of kernels that are no more. While a kernel
// or a server lives, the place itself is used.
func (s *Server) strayNotes(o owners) []string {
	var found []string
	notes, err := os.ReadDir(s.notes())
	if err == nil && !o.used() {
		found = append(found, s.notes())
	}
	for _, e := range notes {
		if o.used() && e.Name() == "null-netns" || o.owns(e.Name()) {
			continue
		}
		found = append(found, filepath.Join(s.notes(), e.Name()))
	}
	return found
}

// strayLimits finds cgroups without an owner.
func (s *Server) strayLimits(o owners) []string {
	var found []string
	for _, dir := range s.limits() {
		if o.used() && filepath.Base(dir) == s.instance() || o.owns(dir) {
			continue
		}
		found = append(found, dir)
	}
	return found
}

// limits lists the cgroups of the data directory: for each hierarchy those of
// sandboxes, and then the one they are in.
func (s *Server) limits() []string {
	var found []string
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/dormouse/" + s.instance()) // the pattern is a good one
	for _, root := range append(roots, "/sys/fs/cgroup/dormouse/"+s.instance()) {
		if _, err := os.Stat(root); err != nil {
			continue
		}
		boxes, _ := os.ReadDir(root)
		for _, e := range boxes {
			if e.IsDir() {
				found = append(found, filepath.Join(root, e.Name()))
			}
		}
		found = append(found, root)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/dormouse-", "/sys/fs/cgroup/dormouse-"} { // where nothing is above them
		flat, _ := filepath.Glob(pattern + s.instance() + "-*")
		found = append(found, flat...)
	}
	return found
}
