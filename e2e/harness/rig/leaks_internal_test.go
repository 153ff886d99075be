package rig

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormouse-run/dormouse"
)

// leaky is a server whose data directory holds one session that sleeps.
func leaky(t *testing.T) *Server {
	t.Helper()
	s := &Server{Data: filepath.Join(t.TempDir(), "data"), Sandbox: GVisor}
	for _, dir := range []string{s.boxesDir(), filepath.Join(s.gvisorDir(), "sessions", "sesn_a", "image"), filepath.Join(s.gvisorDir(), "sessions", "sesn_a", "volume")} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, os.WriteFile(filepath.Join(s.gvisorDir(), "sessions", "sesn_a", "volume.img"), nil, 0o600))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leaks counts with sesn_a asleep and no server.
func leaks(t *testing.T, s *Server) Leaks {
	t.Helper()
	l, err := s.Leaks(false, nil, []dormouse.SessionID{"sesn_a"})
	must(t, err)
	return l
}

func TestNothingLeftIsNoLeak(t *testing.T) {
	if l := leaks(t, leaky(t)); !l.None() || l.String() != "leaks: processes=0 mounts=0 sockets=0 dirs=0" {
		t.Errorf("%s: %q", l, l.All())
	}
}

func TestDirectoriesThatNobodyHasAreFound(t *testing.T) {
	s := leaky(t)
	sessions := filepath.Join(s.gvisorDir(), "sessions")
	want := []string{
		filepath.Join(s.boxesDir(), "sbx_aaaaaaaaaaaaaaaa"), filepath.Join(s.boxesDir(), ".sbx_aaaaaaaaaaaaaaaa"),
		filepath.Join(s.gvisorDir(), "lost", "sesn_c-1"),
		filepath.Join(sessions, "sesn_a", "image.new"), filepath.Join(sessions, "sesn_a", "waking"), filepath.Join(sessions, "sesn_a", "box.json"),
		filepath.Join(sessions, "sesn_b"),
	}
	for _, dir := range want {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, os.WriteFile(filepath.Join(sessions, "sesn_a", "waking", "checkpoint.img"), nil, 0o600))
	got := leaks(t, s).Dirs
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	l, err := s.Leaks(false, []dormouse.SessionID{"sesn_b"}, []dormouse.SessionID{"sesn_a"})
	must(t, err)
	if slices.Contains(l.Dirs, filepath.Join(sessions, "sesn_b")) {
		t.Error("the files of a session that is awake count as left")
	}
}

func TestSocketsThatNobodyHasAreFound(t *testing.T) {
	s := leaky(t)
	dir := filepath.Join(s.boxesDir(), "sbx_aaaaaaaaaaaaaaaa")
	must(t, os.MkdirAll(dir, 0o700))
	t.Chdir(dir) // the whole path may be too long for a socket
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", "socket")
	must(t, err)
	defer func() { _ = l.Close() }()
	if got := leaks(t, s).Sockets; len(got) != 1 || !strings.HasSuffix(got[0], "sbx_aaaaaaaaaaaaaaaa/socket") {
		t.Errorf("found %q", got)
	}
}

func TestProcessesThatNobodyHasAreFound(t *testing.T) {
	s := leaky(t)
	shell := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60; true", "--root="+s.notes(), "sbx_aaaaaaaaaaaaaaaa")
	must(t, shell.Start())
	defer func() { _ = shell.Process.Kill(); _ = shell.Wait() }()
	if got := leaks(t, s).Processes; len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("process %d:", shell.Process.Pid)) {
		t.Errorf("found %q", got)
	}
}

func TestMountsThatNobodyHasAreFound(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount needs root")
	}
	s := leaky(t)
	at := filepath.Join(s.gvisorDir(), "sessions", "sesn_a", "volume")
	must(t, unix.Mount("none", at, "tmpfs", 0, ""))
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	if got := leaks(t, s).Mounts; !slices.Equal(got, []string{"mount " + at}) {
		t.Errorf("found %q", got)
	}
	l, err := s.Leaks(false, []dormouse.SessionID{"sesn_a"}, nil)
	must(t, err)
	if len(l.Mounts) > 0 {
		t.Errorf("the mounts of a session that is awake count as left: %q", l.Mounts)
	}
}
