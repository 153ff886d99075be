// Package matrix kills a server at every named instant of every kind of work and
// compares what is left with what was promised.
package matrix

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/e2e/oracle"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// Config chooses what a run does.
type Config struct {
	rig.Binary
	// Store is the kind of store: sqlite or postgres.
	Store string
	// Sandbox is the kind of sandboxes, local if empty.
	Sandbox string
	// Past is a packed data directory, if not empty: every case begins with a copy of it,
	// so that its session lives beside those that another version left. It is for sqlite.
	Past string
	// Limit bounds the cases of a full run; Sample, if not 0, takes that many of
	// them, spread over points and kinds.
	Limit, Sample int
	// Cases, if not nil, are run instead of those that the matrix lays out.
	Cases []Case
	// Point, Kind and Visit pick cases by hand.
	Point, Kind string
	Visit       int
	Parallel    int
	Seed        uint64
	Verbose     bool
	// Keep leaves the directories of good cases, too.
	Keep bool
	Out  io.Writer
}

// Matrix is one run.
type Matrix struct {
	Config
	dir    string
	models *rig.Models
	stores *rig.Stores
}

// lease is short, so that what a dead server had is soon another one's.
const lease = time.Second

// Summary is what a run came to.
type Summary struct {
	Points, Kinds, Cases int
	Counts               map[string]int
	Failed               []Outcome
	Unreached            []Case
	// NeverHit are the points at which nothing died.
	NeverHit []crash.Point
}

func (s Summary) String() string {
	return fmt.Sprintf("crash: points=%d kinds=%d cases=%d %s", s.Points, s.Kinds, s.Cases, oracle.Counts(s.Counts))
}

// OK reports whether everything was as promised.
func (s Summary) OK() bool { return len(s.Failed) == 0 && len(s.NeverHit) == 0 }

// Run looks which points each kind of work visits, and kills at them.
func Run(ctx context.Context, c Config) (Summary, error) {
	m := &Matrix{Config: c}
	var err error
	if m.dir, err = rig.TempDir("dormouse-crash-*"); err != nil {
		return Summary{}, err
	}
	if m.models, err = rig.NewModels(); err != nil {
		return Summary{}, err
	}
	defer m.models.Close()
	if m.stores, err = rig.NewStores(ctx, c.Store, lease); err != nil {
		return Summary{}, err
	}
	defer func() { _ = m.stores.Close() }()
	cases, rest, err := m.cases(ctx)
	if err != nil {
		return Summary{}, err
	}
	t := newTally(m.points(cases))
	m.all(ctx, cases, t)
	m.all(ctx, spare(rest, t.neverHit(), len(cases)), t)
	s := t.summary()
	if len(s.Failed) == 0 && !m.Keep {
		_ = os.RemoveAll(m.dir)
	}
	return s, ctx.Err()
}

// tally is what the cases of a run have come to so far.
type tally struct {
	points []crash.Point // those to be died at

	mu    sync.Mutex
	begin time.Time
	done  int                  // guarded by mu
	hit   map[crash.Point]bool // guarded by mu
	kinds map[string]bool      // guarded by mu
	sum   Summary              // guarded by mu
}

// points are those at which something must die. Sandboxes of another kind are
// about their own points, and about those that their cases are made of.
func (m *Matrix) points(cases []Case) []crash.Point {
	points := slices.Concat(crash.Points(), crash.Keeping(), crash.Restoring(), crash.Collecting())
	switch {
	case m.Sandbox == rig.GVisor:
		points = slices.Concat(crash.Freezing(), crash.Capturing(), crash.Branching(), crash.Recovering())
		for _, c := range cases {
			points = append(points, c.Arms[len(c.Arms)-1].Point)
		}
		slices.Sort(points)
		return slices.Compact(points)
	case m.stores.Shared():
		points = append(points, crash.Shared()...)
	}
	return points
}

func newTally(points []crash.Point) *tally {
	return &tally{
		points: points,
		begin:  time.Now(), hit: make(map[crash.Point]bool), kinds: make(map[string]bool),
		sum: Summary{Counts: make(map[string]int)},
	}
}

func (t *tally) add(o Outcome) {
	t.done++
	for _, a := range o.Died {
		t.hit[a.Point] = true
	}
	switch {
	case !o.OK():
		t.sum.Failed = append(t.sum.Failed, o)
	case !o.Reached:
		t.sum.Unreached = append(t.sum.Unreached, o.Case)
	}
	if o.Reached {
		t.sum.Cases++
		t.kinds[o.Kind.Name] = true
	}
	for zero, found := range o.Findings {
		t.sum.Counts[zero] += len(found)
	}
	if o.Err != nil {
		t.sum.Counts[oracle.Stuck]++ // a rig that cannot go on has met a server that did not
	}
}

func (t *tally) neverHit() []crash.Point {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing []crash.Point
	for _, p := range t.points {
		if !t.hit[p] {
			missing = append(missing, p)
		}
	}
	return missing
}

func (t *tally) summary() Summary {
	missing := t.neverHit()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sum
	s.Points, s.Kinds, s.NeverHit = len(t.hit), len(t.kinds), missing
	return s
}

// all runs cases, several at once.
func (m *Matrix) all(ctx context.Context, cases []Case, t *tally) {
	m.each(ctx, cases, func(c Case) {
		o, _ := m.run(ctx, c, false)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.add(o)
		if !o.OK() {
			m.report(o)
		}
		if m.Verbose {
			fmt.Fprintf(m.Out, "%-60s reached=%v ok=%v %s\n", c, o.Reached, o.OK(), o.Took.Round(time.Millisecond))
		} else if t.done%50 == 0 || t.done == len(cases) {
			fmt.Fprintf(m.Out, "crash: %d/%d cases, %d failed, %d not reached, %s\n",
				t.done, len(cases), len(t.sum.Failed), len(t.sum.Unreached), time.Since(t.begin).Round(time.Second))
		}
	})
}

// each calls f for every case, Parallel at once.
func (m *Matrix) each(ctx context.Context, cases []Case, f func(Case)) {
	work := make(chan Case)
	var running sync.WaitGroup
	for range max(m.Parallel, 1) {
		running.Go(func() {
			for c := range work {
				f(c)
			}
		})
	}
	for _, c := range cases {
		select {
		case work <- c:
		case <-ctx.Done():
		}
	}
	close(work)
	running.Wait()
}

// report prints everything about a case that failed.
func (m *Matrix) report(o Outcome) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nFAILED %s\n", o.Case)
	if len(o.Arms) > 0 {
		fmt.Fprintf(&b, "  again with: -kind %s -point %s -visit %d -seed %d\n", o.Kind.Name, rig.FormatArms(o.Arms), o.Arms[0].Visit, m.Seed)
	}
	fmt.Fprintf(&b, "  kept in %s\n", o.Dir)
	if o.Err != nil {
		fmt.Fprintf(&b, "  error: %v\n", o.Err)
	}
	b.WriteString(o.Findings.String())
	b.WriteString("  the log ends:\n")
	for _, e := range o.Tail {
		payload := string(e.Payload)
		if len(payload) > 160 {
			payload = payload[:160] + "…"
		}
		fmt.Fprintf(&b, "    %d %s %s %s\n", e.Seq, e.Time.Format("05.000000"), e.Type, payload)
	}
	b.WriteString("  the server says:\n")
	said, _ := os.ReadFile(o.Dir + "/server.log")
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	for _, line := range lines[max(0, len(lines)-30):] {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	fmt.Fprintln(m.Out, b.String())
}
