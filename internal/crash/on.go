//go:build crash

package crash

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether points are compiled in.
const Enabled = true

type trap struct {
	point Point
	death Death
	hits  *os.File

	mu   sync.Mutex
	left int // guarded by mu
}

var armed = sync.OnceValue(func() *trap {
	where, death, _ := strings.Cut(os.Getenv("DORMOUSE_CRASH_AT"), "!")
	name, nth, _ := strings.Cut(where, "#")
	t := &trap{point: Point(name), death: Death(death), left: 1}
	if n, err := strconv.Atoi(nth); err == nil && n > 0 {
		t.left = n
	}
	if path := os.Getenv("DORMOUSE_CRASH_HITS"); path != "" {
		t.hits, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	return t
})

// At ends the process if it was told to die here, on the visit it was told. The
// variable DORMOUSE_CRASH_AT is "point", "point#visit" or "point#visit!death";
// every visit is appended to the file DORMOUSE_CRASH_HITS names.
func At(p Point) {
	t := armed()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hits != nil {
		_, _ = t.hits.WriteString(string(p) + "\n")
	}
	if p != t.point {
		return
	}
	if t.left--; t.left == 0 {
		t.die()
	}
}

func (t *trap) die() {
	switch t.death {
	case Kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case Exit:
		os.Exit(1) //nolint:forbidigo // that is the fault
	case Panic:
		panic("told to panic at " + string(t.point))
	case Freeze:
		freeze()
	}
}

// freeze stops the process until it is continued by a signal. The signal goes to the
// calling thread, so that this thread does nothing more when the whole process is
// stopped.
func freeze() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGSTOP))
}

// Now is the clock of the machine as a test has set it. The file that
// DORMOUSE_CLOCK names holds how far it is off, or the time at which it stands
// still. Like the clock of a machine that is set, it goes back where it is told.
func Now() time.Time {
	b, _ := os.ReadFile(os.Getenv("DORMOUSE_CLOCK")) //nolint:gosec // a test says where; no file: no test has set it
	text := strings.TrimSpace(string(b))
	if off, err := time.ParseDuration(text); err == nil {
		return time.Now().Round(0).Add(off)
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at
	}
	return time.Now()
}

// Every is how often something is done, unless a test has it done more often: the
// variable it is named by says so.
func Every(name string, usual time.Duration) time.Duration {
	if often, err := time.ParseDuration(os.Getenv(name)); err == nil && often > 0 {
		return often
	}
	return usual
}

// Boot is the present start of the machine, which a test has start anew by writing
// something else to the file that DORMOUSE_BOOT names.
func Boot(id string) string {
	b, _ := os.ReadFile(os.Getenv("DORMOUSE_BOOT")) //nolint:gosec // a test says where; no file: it is as it is
	return id + string(b)
}

// Without reports whether a part of the server is left out, by the name that the variable
// DORMOUSE_WITHOUT holds: what else would come first must not hide what is tested.
func Without(part string) bool { return os.Getenv("DORMOUSE_WITHOUT") == part }
