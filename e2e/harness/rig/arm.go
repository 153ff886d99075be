package rig

import (
	"fmt"
	"strings"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// Arm is where and how a life is to die. The zero Arm is an ordinary life.
type Arm struct {
	Point crash.Point
	Visit int
	Death crash.Death
}

func (a Arm) String() string {
	if a.Point == "" {
		return "-"
	}
	name := fmt.Sprintf("%s#%d", a.Point, max(a.Visit, 1))
	if a.Death != crash.Kill {
		name += "!" + string(a.Death)
	}
	return name
}

// InRunner reports whether the point lies in the runner's process.
func (a Arm) InRunner() bool { return strings.HasPrefix(string(a.Point), "runner.") }

// FormatArms names arms so that ParseArms can read them.
func FormatArms(arms []Arm) string {
	names := make([]string, 0, len(arms))
	for _, a := range arms {
		names = append(names, a.String())
	}
	return strings.Join(names, ",")
}

// ParseArms parses what FormatArms returns. An arm that names no visit means the given
// one.
func ParseArms(text string, visit int) []Arm {
	var arms []Arm
	for name := range strings.SplitSeq(text, ",") {
		where, death, _ := strings.Cut(name, "!")
		point, nth, counted := strings.Cut(where, "#")
		if point == "-" {
			point = ""
		}
		a := Arm{Point: crash.Point(point), Visit: max(visit, 1), Death: crash.Death(death)}
		if counted {
			_, _ = fmt.Sscan(nth, &a.Visit)
		}
		arms = append(arms, a)
	}
	return arms
}
