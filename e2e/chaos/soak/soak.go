// Package soak keeps many sessions at work for a long time, in real gVisor sandboxes,
// on one server and then on three, while servers, sandboxes and the database are
// killed and frozen. The promises to a session are checked when the session ends; the
// resources of servers and sessions are measured again and again at the same point of
// the load, where they must not grow.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
)

// Config chooses what is done.
type Config struct {
	rig.Binary
	// Store is the only kind of store, if not both have half of the time.
	Store    string
	Seed     uint64
	Sessions int
	// Awake is how many of them are awake at once, at most.
	Awake int
	// For is how long it takes in all.
	For time.Duration
	Out io.Writer
}

// Summary is what it came to.
type Summary struct {
	Config
	// Kills counts servers and sandboxes that were killed, Freezes servers that stood
	// still, Restarts those of the database.
	Kills, Freezes, Restarts int
	// Rounds were played, in which sessions lived through so many chapters; Judged
	// have lived to their end. Branches and sessions that were made twice because an
	// answer was lost are Strays.
	Rounds, Chapters, Judged, Strays int
	Findings                         oracle.Findings
	Leaks                            rig.Leaks
	Slopes                           []Slope
	// Dir is what is kept of a run that was not well.
	Dir string
}

// OK reports whether everything was as promised.
func (s Summary) OK() bool {
	return s.Findings.OK() && s.Leaks.None() && !slices.ContainsFunc(s.Slopes, func(s Slope) bool { return !s.OK() })
}

func (s Summary) String() string {
	counts := make(map[string]int)
	for zero, found := range s.Findings {
		counts[zero] = len(found)
	}
	slope := 0.0
	for _, of := range s.Slopes {
		if of.Measure == rss {
			slope = max(slope, of.Ratio())
		}
	}
	return fmt.Sprintf("soak: seed=%d rounds=%d chapters=%d judged=%d strays=%d freezes=%d restarts=%d %s\n",
		s.Seed, s.Rounds, s.Chapters, s.Judged, s.Strays, s.Freezes, s.Restarts, oracle.Counts(counts)) +
		fmt.Sprintf("soak: minutes=%.3g sessions=%d kills=%d lost=%d double=%d leaks=%d rss_slope=%.2f",
			s.For.Minutes(), s.Sessions, s.Kills, counts[oracle.Lost], counts[oracle.Double], len(s.Leaks.All()), slope)
}

// Wrong lists everything that is.
func (s Summary) Wrong() string {
	var b strings.Builder
	b.WriteString(s.Findings.String())
	for _, leak := range s.Leaks.All() {
		fmt.Fprintf(&b, "leak: %s\n", leak)
	}
	for _, slope := range s.Slopes {
		if !slope.OK() {
			fmt.Fprintf(&b, "grew: %s\n", slope)
		}
	}
	return b.String()
}

// soak is one of them.
type soak struct {
	Config
	dir string

	mu  sync.Mutex
	sum *Summary // guarded by mu
}

// Run keeps sessions at work, strikes, measures, and judges.
func Run(ctx context.Context, c Config) (Summary, error) {
	s := &soak{Config: c, sum: &Summary{Config: c, Findings: make(oracle.Findings)}}
	var err error
	// Memory images of hundreds of sessions are too much for a place in memory.
	if s.dir, err = os.MkdirTemp("", "dormouse-soak-*"); err != nil {
		return *s.sum, err
	}
	s.sum.Dir = s.dir
	halves := []*half{
		{soak: s, name: "one server", store: "sqlite", servers: 1},
		{soak: s, name: "three servers", store: "postgres", servers: 3},
	}
	halves = slices.DeleteFunc(halves, func(h *half) bool { return c.Store != "" && h.store != c.Store })
	for _, h := range halves {
		h.time = c.For / time.Duration(len(halves))
		if err = h.run(ctx); err != nil {
			err = fmt.Errorf("%s: %w", h.name, err)
			break
		}
	}
	if s.sum.OK() && (err == nil || ctx.Err() != nil) {
		err, s.sum.Dir = errors.Join(err, os.RemoveAll(s.dir)), ""
	}
	return *s.sum, err
}

// report prints a line.
func (s *soak) report(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.Out, "soak: "+format+"\n", args...)
}

func (s *soak) add(zero, format string, args ...any) {
	s.mu.Lock()
	s.sum.Findings.Add(zero, format, args...)
	s.mu.Unlock()
	s.report("%s: %s", zero, fmt.Sprintf(format, args...))
}

// merge adds what was found of a session.
func (s *soak) merge(m *member, found oracle.Findings) {
	for zero, texts := range found {
		for _, text := range texts {
			m.wrong(zero, "%s", text)
		}
	}
}

// count changes a number of the summary.
func (s *soak) count(f func(*Summary)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.sum)
}

// wrong counts everything that was found so far.
func (s *soak) wrong() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, found := range s.sum.Findings {
		n += len(found)
	}
	return n + len(s.sum.Leaks.All())
}

// path is one in the directory of the run.
func (s *soak) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}
