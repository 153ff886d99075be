package rig

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/dormouse-run/dormouse"
)

// mark is the variable that every process of a local sandbox carries.
const mark = "DORMOUSE_SANDBOX="

// Runners lists the living runners of the data directory's sandboxes. Only the
// runner's own command line names the directory, so nothing else is hit.
func (s *Server) Runners() []int {
	var pids []int
	each(func(pid int) {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && strings.Contains(string(line), "\x00-socket\x00") &&
			strings.Contains(string(line), filepath.Join(s.Data, "sandbox")+"/") {
			pids = append(pids, pid)
		}
	})
	return pids
}

// KillRunners is kill -9 for the runners, and for nothing that they started.
func (s *Server) KillRunners() int { return s.KillPart(Runner) }

// KillPart is kill -9 for one part of every sandbox.
func (s *Server) KillPart(p Part) int {
	if s.Sandbox == GVisor {
		return s.killKernels(p)
	}
	pids := s.Runners()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(pids)
}

// Clear ends everything that sandboxes of the data directory left, so that a case
// leaves nothing behind: no process, no mount, no directory elsewhere.
func (s *Server) Clear() error {
	if s.Sandbox == GVisor {
		return s.clearKernels()
	}
	s.KillSandboxes()
	return nil
}

// KillSandboxes is kill -9 for every process of every sandbox.
func (s *Server) KillSandboxes() {
	if s.Sandbox == GVisor {
		s.killKernels(Both)
		return
	}
	marks := make(map[string]bool)
	for _, pid := range s.Runners() {
		if m := markOf(pid); m != "" {
			marks[m] = true
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	// A runner that died before left its children with the mark alone.
	dirs, _ := filepath.Glob(filepath.Join(s.Data, "sandbox", "sandboxes", "*", "*"))
	each(func(pid int) {
		m := markOf(pid)
		if m == "" {
			return
		}
		if marks[m] {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			return
		}
		for _, dir := range dirs {
			session, generation := filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
			if strings.HasSuffix(m, "/"+session+"/"+generation) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

// Left lists what is there of a session on this machine: its files and its
// processes.
func (s *Server) Left(id dormouse.SessionID) []string {
	var left []string
	_ = filepath.WalkDir(s.Data, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path), string(id)) {
			left = append(left, path)
		}
		return nil // what went away meanwhile is not left
	})
	each(func(pid int) {
		if strings.Contains(markOf(pid), "/"+string(id)+"/") {
			left = append(left, fmt.Sprintf("process %d", pid))
		}
	})
	return left
}

func markOf(pid int) string {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return ""
	}
	for e := range strings.SplitSeq(string(env), "\x00") {
		if m, ok := strings.CutPrefix(e, mark); ok {
			return m
		}
	}
	return ""
}

func each(f func(pid int)) {
	dirs, _ := os.ReadDir("/proc") // what cannot be listed cannot be killed
	for _, d := range dirs {
		if pid, err := strconv.Atoi(d.Name()); err == nil {
			f(pid)
		}
	}
}
