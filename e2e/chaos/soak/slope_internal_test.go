package soak

import (
	"math/rand/v2"
	"strings"
	"testing"
)

const (
	testSessions = 500
	testRounds   = 40
	testLife     = 8
)

// played is what three servers, killed every eighth round in turn, would show of
// something that value says by round and age.
func played(seed uint64, noise float64, value func(round, age int) float64) []point {
	r := rand.New(rand.NewPCG(seed, 0))
	var points []point
	for round := range testRounds {
		for server := range 3 {
			age := (round + server*testLife/3) % testLife
			points = append(points, point{round, age, value(round, age) * (1 + noise*(2*r.Float64()-1))})
		}
	}
	return points
}

func grown(t *testing.T, points map[string][]point) []string {
	t.Helper()
	for _, m := range measures {
		if points[m.name] == nil {
			points[m.name] = played(1, 0, func(int, int) float64 { return 10 })
		}
	}
	slopes, missing := judge("test", points, testSessions, testRounds, testLife)
	if len(missing) > 0 {
		t.Fatalf("not compared: %v", missing)
	}
	var grew []string
	for _, s := range slopes {
		if !s.OK() {
			grew = append(grew, s.Measure+" over "+s.Over)
		}
	}
	return grew
}

func TestSlopeNoticesWhatGrows(t *testing.T) {
	for name, c := range map[string]struct {
		measure string
		value   func(round, age int) float64
		want    string
	}{
		"a goroutine for each prompt": {goroutines, func(_, age int) float64 { return 80 + 8*float64(age) }, "goroutines over a life"},
		"a descriptor for each nap":   {descriptors, func(_, age int) float64 { return 40 + 5*float64(age) }, "descriptors over a life"},
		"memory by what is stored":    {rss, func(round, _ int) float64 { return 60 + 2*float64(round) }, "rss over the rounds"},
		"rows that nobody removes":    {"rows", func(round, _ int) float64 { return 100 + 2*float64(round) }, "rows over the rounds"},
		"mounts that are left":        {"mounts", func(round, _ int) float64 { return float64(round / 5) }, "mounts over the rounds"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				grew := grown(t, map[string][]point{c.measure: played(seed, 0.05, c.value)})
				if strings.Join(grew, ", ") != c.want {
					t.Fatalf("seed %d: grew %v, want %s", seed, grew, c.want)
				}
			}
		})
	}
}

func TestSlopeIsNotFooledByNoise(t *testing.T) {
	for seed := range uint64(200) {
		points := make(map[string][]point)
		for i, m := range measures {
			points[m.name] = played(seed*100+uint64(i), 0.2, func(_, age int) float64 {
				if m.lives && age == 0 {
					return 70 // a server that has just begun has less
				}
				return 100
			})
		}
		if grew := grown(t, points); len(grew) > 0 {
			t.Errorf("seed %d: nothing grew, and the judge says %v", seed, grew)
		}
	}
}

// Ages that only one of the quarters has are no evidence.
func TestSlopeComparesEachAgeWithItself(t *testing.T) {
	old := func(_, age int) float64 { return 50 + 10*float64(age) }
	points := played(1, 0, old)
	points = append(points, point{testRounds - 1, 100, 5000}, point{testRounds - 1, 100, 5000})
	before, after, ok := overRounds(points, testRounds)
	if !ok || before != after {
		t.Errorf("compared %v with %v: %v", before, after, ok)
	}
}

func TestSlopeOfFewSessionsLeavesRoomForChance(t *testing.T) {
	grows := map[string][]point{"rows": {{round: 1, value: 100}, {round: 3, value: 130}}}
	for sessions, want := range map[int]bool{testSessions: false, 30: true} {
		slopes, _ := judge("test", grows, sessions, quarters, testLife)
		if len(slopes) != 1 || slopes[0].OK() != want {
			t.Errorf("%d sessions: %v, want %v", sessions, slopes, want)
		}
	}
}

func TestSlopeSaysWhatItCouldNotCompare(t *testing.T) {
	_, missing := judge("test", map[string][]point{rss: {{round: 0, value: 1}}}, testSessions, 1, testLife)
	if want := "test: rss over a life"; !strings.Contains(strings.Join(missing, "\n"), want) {
		t.Errorf("missing %v, want %q among them", missing, want)
	}
}
