//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/sleep"
)

// squeeze is a way to have a server run out of memory.
type squeeze struct {
	// wrap is a line of shell that a server runs before it begins.
	wrap string
	// tighten leaves it a few megabytes more than it has, ease takes that back.
	tighten, ease func()
}

// newSqueeze makes a group of processes for whose memory the kernel kills. Where
// that cannot be had, a process that may have no more ends itself.
func newSqueeze(t *testing.T) squeeze {
	t.Helper()
	for _, group := range []struct{ dir, limit, usage, most string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "-1"},
		{"/sys/fs/cgroup", "memory.max", "memory.current", "max"},
	} {
		dir := filepath.Join(group.dir, fmt.Sprintf("dormouse-e2e-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		limit, usage := filepath.Join(dir, group.limit), filepath.Join(dir, group.usage)
		if _, err := os.Stat(usage); err != nil {
			continue
		}
		return squeeze{
			wrap: "echo $$ > " + filepath.Join(dir, "cgroup.procs"),
			tighten: func() {
				b, err := os.ReadFile(usage)
				must(t, err)
				used, err := strconv.Atoi(strings.TrimSpace(string(b)))
				must(t, err)
				must(t, os.WriteFile(limit, []byte(strconv.Itoa(used+4<<20)), 0o600))
			},
			ease: func() { must(t, os.WriteFile(limit, []byte(group.most), 0o600)) },
		}
	}
	return squeeze{wrap: "ulimit -v 1100000", tighten: func() {}, ease: func() {}}
}

func TestServerThatRunsOutOfMemoryIsTakenUp(t *testing.T) {
	q := newSqueeze(t)
	w := newWorld(t, func(s *rig.Server) {
		wrapped := filepath.Join(filepath.Dir(s.Data), "wrapped")
		text := "#!/bin/sh\n" + q.wrap + "\nexec " + s.Server + " \"$@\"\n"
		must(t, os.WriteFile(wrapped, []byte(text), 0o700))
		s.Server = wrapped
	})
	a := w.create(nil)
	wait, open := w.gate()
	a.send("one", a.script(rig.Bash(a.marked(wait)), rig.Say("it went on")))
	a.begun(1)
	first := w.live()
	w.lull.set(q.ease)
	q.tighten()
	large := options{"content": strings.Repeat("x", 900<<10)}
	for !first.Gone() { // each is read before it is refused
		go func() { _, _ = w.Once(w.ctx, http.MethodPost, a.Path("/answers"), large, nil) }()
		must(t, sleep.For(w.ctx, 1e6))
	}
	a.sees(dormouse.SessionStatusRescheduled, 1)
	open()
	// The sandbox may have been killed for the same memory.
	if shown := a.rests(); !slices.Contains([]dormouse.Phase{dormouse.PhaseReady, dormouse.PhaseHibernated}, shown.Phase) {
		t.Errorf("session is %s, want ready or hibernated", shown.Phase)
	}
	if n := a.effects("begin"); n != 1 {
		t.Errorf("the command began %d times, want once", n)
	}
	a.send("two", a.script(rig.Bash(a.marked("true")), rig.Say("and takes prompts")))
	a.rests()
}
