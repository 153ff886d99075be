//go:build crash

package crash

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled reports whether points are compiled in.
const Enabled = true

type trap struct {
	point Point
	hits  *os.File

	mu   sync.Mutex
	left int // guarded by mu
}

var armed = sync.OnceValue(func() *trap {
	name, nth, _ := strings.Cut(os.Getenv("DORMOUSE_CRASH_AT"), "#")
	t := &trap{point: Point(name), left: 1}
	if n, err := strconv.Atoi(nth); err == nil && n > 0 {
		t.left = n
	}
	if path := os.Getenv("DORMOUSE_CRASH_HITS"); path != "" {
		t.hits, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	return t
})

// At kills the process if it was told to die here, on the visit it was told.
// The variable DORMOUSE_CRASH_AT is "point" or "point#visit"; every visit is
// appended to the file DORMOUSE_CRASH_HITS names.
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
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
