package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// line is one measurement as it is printed: its numbers in order, and what was
// promised of them.
type line struct {
	Name    string   `json:"name"`
	Numbers []number `json:"numbers"`
	Targets []target `json:"targets,omitempty"`
}

// number is one value with its unit.
type number struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// target is a bound on one number of a line.
type target struct {
	Number string  `json:"number"`
	Limit  float64 `json:"limit"`
	Most   bool    `json:"most"` // the limit is the most it may be, not the least
	Met    bool    `json:"met"`
}

func atLeast(name string, limit float64) target { return target{Number: name, Limit: limit} }
func atMost(name string, limit float64) target {
	return target{Number: name, Limit: limit, Most: true}
}

// The units.
const (
	perSecond = "/s"
	millis    = "ms"
	kibibytes = "KiB"
	mebibytes = "MiB"
)

func rate(name string, n int, d time.Duration) number {
	return number{name, float64(n) / d.Seconds(), perSecond}
}

func took(name string, d time.Duration) number {
	return number{name, float64(d) / float64(time.Millisecond), millis}
}

func count(name string, n int) number { return number{Name: name, Value: float64(n)} }

func ratio(of, to number) number { return number{Name: "ratio", Value: of.Value / to.Value} }

func (n number) String() string {
	var digits int
	switch {
	case n.Value < 10:
		digits = 3
	case n.Value < 100:
		digits = 1
	}
	s := fmt.Sprintf("%.*f", digits, n.Value)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return n.Name + "=" + s + n.Unit
}

func (l line) number(name string) number {
	for _, n := range l.Numbers {
		if n.Name == name {
			return n
		}
	}
	panic("bench: " + l.Name + " has no number " + name)
}

// report judges a line and prints it.
func (b *bench) report(kind string, l line) {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s", kind, l.Name)
	for _, n := range l.Numbers {
		s.WriteString(" " + n.String())
	}
	for i := range l.Targets {
		t := &l.Targets[i]
		n := l.number(t.Number)
		sign, verdict := ">=", "ok"
		if t.Met = n.Value >= t.Limit; t.Most {
			sign, t.Met = "<=", n.Value <= t.Limit
		}
		if !t.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(&s, " target(%s%s%g%s) %s", t.Number, sign, t.Limit, n.Unit, verdict)
	}
	fmt.Fprintln(b.out, s.String())
	b.lines = append(b.lines, l)
}

// write keeps the numbers for a program to read.
func (b *bench) write(file string) error {
	doc, err := json.MarshalIndent(struct {
		Time  time.Time `json:"time"`
		CPUs  int       `json:"cpus"`
		Go    string    `json:"go"`
		Lines []line    `json:"lines"`
	}{time.Now().UTC(), runtime.NumCPU(), runtime.Version(), b.lines}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(doc, '\n'), 0o600)
}

// quietSync is the slowest sync at which the absolute targets are meant to hold.
const quietSync = 300 * time.Microsecond

// summarise says how many targets were missed, and whether this machine is one
// on which that means anything.
func (b *bench) summarise(file string) (missed int) {
	targets := 0
	for _, l := range b.lines {
		for _, t := range l.Targets {
			targets++
			if !t.Met {
				missed++
			}
		}
	}
	fmt.Fprintf(b.out, "%d of %d targets met; numbers in %s\n", targets-missed, targets, file)
	if b.floors.sync > quietSync {
		fmt.Fprintf(b.out, "a sync takes %s here: targets that are not ratios are meant for a quiet machine where it takes at most %s\n", b.floors.sync, quietSync)
	}
	return missed
}
