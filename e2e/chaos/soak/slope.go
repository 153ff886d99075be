package soak

import (
	"fmt"
	"math"
	"slices"
)

// point is one measurement at the end of a round. Age is the number of rounds that the
// measured server had lived through before, 0 for a measurement that is not of a
// server.
type point struct {
	round, age int
	value      float64
}

// measure is a quantity that is measured. A difference of up to slack is not growth,
// whatever the ratio: a sandbox that is about to be ready, a connection that is about
// to be closed.
type measure struct {
	name  string
	slack float64
	// lives says that the value starts at zero with each life of a server, sessions
	// that it is an average over all sessions.
	lives, sessions bool
}

// measures are all quantities that are measured, in the order of the report.
var measures = []measure{
	{rss, 0, true, false},
	{descriptors, 4, true, false},
	{goroutines, 6, true, false},
	{"mounts", 2, false, false},
	{"loops", workers, false, false}, // a spare sandbox keeps the loop devices of all sandboxes that were awake when it was made
	{"cgroups", 2, false, false},
	{"disk", 0, false, true},
	{"rows", 0, false, true},
	{"layers", 0, false, false},
}

// Measures of a server: MiB, or a count.
const (
	rss         = "rss"
	descriptors = "descriptors"
	goroutines  = "goroutines"
)

// Slope compares a measure in the second quarter with the last.
type Slope struct {
	// Half says which half of the run, Measure what was measured.
	Half, Measure string
	// Over says along what it was compared: along the rounds of the half, at equal ages
	// of the servers, or along the life of a server, with all lives overlaid.
	Over string
	// Before and After are the medians of the second and the last quarter.
	Before, After float64
	most, slack   float64
}

// most is the largest ratio that does not count as growth. Small samples vary more by
// chance, so it is larger for them.
func (m measure) most(sessions int) float64 {
	const most, chance = 1.2, 2.5
	if m.sessions {
		return max(most, 1+chance/math.Sqrt(float64(sessions)))
	}
	return most
}

// OK reports whether the measure did not grow.
func (s Slope) OK() bool { return s.After <= s.most*s.Before+s.slack }

// Ratio is the last quarter divided by the second.
func (s Slope) Ratio() float64 {
	if s.Before == 0 {
		return 1 + s.After
	}
	return s.After / s.Before
}

func (s Slope) String() string {
	verdict := "held"
	if !s.OK() {
		verdict = "GREW"
	}
	return fmt.Sprintf("%s: %s %s over %s: %.4g in the second quarter, %.4g in the last (%.2f)", s.Half, s.Measure, verdict, s.Over, s.Before, s.After, s.Ratio())
}

// overRounds compares quarters of the rounds. Servers are younger in some rounds than
// in others, so each age is compared with itself, and the results are averaged over all
// ages.
func overRounds(points []point, rounds int) (before, after float64, ok bool) {
	return compare(points, func(p point) (int, int) { return p.round * quarters / rounds, p.age })
}

// overLives compares quarters of the lives of servers. A life is that many rounds long;
// points of servers that got older are not used.
func overLives(points []point, life int) (before, after float64, ok bool) {
	return compare(points, func(p point) (int, int) { return p.age * quarters / life, 0 })
}

const (
	quarters = 4
	second   = 1
	last     = 3
)

// compare returns the medians of the second and the last quarter, averaged over the
// kinds of points that both quarters have.
func compare(points []point, of func(point) (quarter, kind int)) (before, after float64, ok bool) {
	values := make(map[int]map[int][]float64)
	for _, p := range points {
		quarter, kind := of(p)
		if values[kind] == nil {
			values[kind] = make(map[int][]float64)
		}
		values[kind][quarter] = append(values[kind][quarter], p.value)
	}
	n := 0.0
	for _, v := range values {
		if len(v[second]) > 0 && len(v[last]) > 0 {
			before, after, n = before+median(v[second]), after+median(v[last]), n+1
		}
	}
	if n == 0 {
		return 0, 0, false
	}
	return before / n, after / n, true
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// judge compares everything that was measured in one half. Measures that could not be
// compared are returned as missing.
func judge(half string, points map[string][]point, sessions, rounds, life int) (slopes []Slope, missing []string) {
	for _, m := range measures {
		add := func(over string, before, after float64, ok bool) {
			if !ok {
				missing = append(missing, fmt.Sprintf("%s: %s over %s", half, m.name, over))
				return
			}
			slopes = append(slopes, Slope{half, m.name, over, before, after, m.most(sessions), m.slack})
		}
		before, after, ok := overRounds(points[m.name], rounds)
		add("the rounds", before, after, ok)
		if m.lives {
			before, after, ok = overLives(points[m.name], life)
			add("a life", before, after, ok)
		}
	}
	return slopes, missing
}
