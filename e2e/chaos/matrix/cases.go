package matrix

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// seen is the points that the lives of one kind visited while no fault was injected.
type seen struct {
	kind  play.Kind
	first []rig.Arm // how it was killed before the life that was looked at
	count map[crash.Point]int
}

// cases lays the matrix out.
func (m *Matrix) cases(ctx context.Context) (chosen, rest []Case, err error) {
	if m.Cases != nil {
		chosen = slices.Clone(m.Cases)
		for i := range chosen {
			chosen[i].N = i + 1
		}
		return chosen, nil, nil
	}
	if m.Point != "" && m.Kind != "" {
		k, ok := play.Named(m.Kind)
		if !ok {
			return nil, nil, fmt.Errorf("there is no kind %q", m.Kind)
		}
		return []Case{{Kind: k, Arms: rig.ParseArms(m.Point, m.Visit), N: 1}}, nil, nil
	}
	looked, err := m.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := slices.Concat(m.singles(looked), m.pairs(looked), m.exhausting(), m.others(looked))
	all = slices.DeleteFunc(all, func(c Case) bool {
		return m.Kind != "" && c.Kind.Name != m.Kind || m.Point != "" && !strings.HasPrefix(rig.FormatArms(c.Arms), m.Point)
	})
	limit := m.Limit
	if m.Sample > 0 {
		limit = m.Sample
	}
	if m.Kind != "" || m.Point != "" {
		limit = 0
	}
	chosen, rest = m.choose(all, limit)
	for i := range chosen {
		chosen[i].N = i + 1
	}
	return chosen, rest, nil
}

// look plays every kind once without killing it, and once more for each way to
// die first, and notes which points are visited. For a sample one way is enough.
func (m *Matrix) look(ctx context.Context) ([]seen, error) {
	begin := time.Now()
	r := rand.New(rand.NewPCG(m.Seed, 3))
	var plans []Case
	for _, k := range play.Kinds(m.Sandbox, m.stores.Shared()) {
		if m.Kind != "" && m.Kind != k.Name && m.Kind != k.Beside().Name {
			continue
		}
		plans = append(plans, Case{Kind: k})
		deaths := deathsBefore(k)
		if m.Sample > 0 && len(deaths) > 0 {
			deaths = []rig.Arm{deaths[r.IntN(len(deaths))]}
		}
		for _, a := range deaths {
			plans = append(plans, Case{Kind: k, Arms: []rig.Arm{a}})
		}
	}
	// What takes long begins first.
	slices.SortStableFunc(plans, func(a, b Case) int { return cmp.Compare(b.Kind.Only, a.Kind.Only) })
	for i := range plans {
		plans[i].N = 100_000 + i
	}
	var mu sync.Mutex
	var all []seen
	var failed error
	m.each(ctx, plans, func(c Case) {
		o, visits := m.run(ctx, c, true)
		mu.Lock()
		defer mu.Unlock()
		if !o.OK() {
			m.report(o)
			failed = fmt.Errorf("%s went wrong while it was only looked at", c)
		}
		for n, count := range visits {
			switch {
			case n == 0 && len(c.Arms) == 0:
				all = append(all, seen{kind: c.Kind, count: count})
			case n == 1 && len(c.Arms) > 0:
				all = append(all, seen{kind: c.Kind, first: c.Arms, count: count})
			case n == 1 && c.Kind.Kills:
				all = append(all, seen{kind: c.Kind, first: []rig.Arm{{}}, count: count})
			}
		}
	})
	slices.SortFunc(all, func(a, b seen) int {
		return cmp.Or(cmp.Compare(a.kind.Name, b.kind.Name), cmp.Compare(rig.FormatArms(a.first), rig.FormatArms(b.first)))
	})
	fmt.Fprintf(m.Out, "crash: looked at %d kinds of work in %s\n", len(plans), time.Since(begin).Round(time.Second))
	if failed == nil {
		failed = ctx.Err()
	}
	return all, failed
}

// deathsBefore are the deaths whose recovery is looked at: before an op is sent,
// after, and once its result is there.
func deathsBefore(k play.Kind) []rig.Arm {
	switch k.Name {
	case "model-stream", "model-keyed":
		return []rig.Arm{{Point: crash.OpChunk, Visit: 2}, {Point: crash.OpStarted, Visit: 1}}
	case "exec", "task", "write", "edit", "mixed", "ask-retry", "ask-continue", "ask-hibernate", "exec-lost", "write-lost", "edit-lost", "task-lost", "exec-big", "gofer-lost", "both-lost":
		return []rig.Arm{{Point: crash.OpSent, Visit: 2}, {Point: crash.OpStarted, Visit: 2}, {Point: crash.OpResult, Visit: 2}}
	case "exec-person", "exec-person-lost", "exec-person-cold":
		return []rig.Arm{{Point: crash.OpSent, Visit: 1}, {Point: crash.OpResult, Visit: 1}}
	case "exec-person-end":
		return []rig.Arm{{Point: crash.OpKilling, Visit: 1}}
	case "read", "glob", "grep", "exec-keyed", "interrupt-flush", "terminate", "threads":
		return []rig.Arm{{Point: crash.OpSent, Visit: 2}}
	case "custom", "approval", "two-gates", "question":
		return []rig.Arm{{Point: crash.OpFinished, Visit: 1}, {Point: crash.TurnBlocking, Visit: 1}}
	case "interrupt-exec":
		return []rig.Arm{{Point: crash.InterruptCommitted, Visit: 1}, {Point: crash.OpKilling, Visit: 1}}
	case "queue", "prompt-big":
		return []rig.Arm{{Point: crash.PromptAnswered, Visit: 1}, {Point: crash.TurnEnded, Visit: 1}}
	case "wakeup":
		return []rig.Arm{{Point: crash.WakeupFiring, Visit: 1}, {Point: crash.WakeupFired, Visit: 1}}
	case "child", "child-message":
		return []rig.Arm{{Point: crash.ChildCreating, Visit: 1}, {Point: crash.ChildCreated, Visit: 1}, {Point: crash.ChildPrompted, Visit: 1}}
	case "tree", "child-early":
		return []rig.Arm{{Point: crash.ChildEnding, Visit: 1}, {Point: crash.ChildEnded, Visit: 1}}
	case "delete", "tree-delete":
		return []rig.Arm{{Point: crash.DeleteClearing, Visit: 1}, {Point: crash.DeleteCleared, Visit: 1}}
	case "counter":
		return []rig.Arm{
			{Point: crash.SandboxFrozen, Visit: 1},
			{Point: crash.SandboxPaused, Visit: 2},
			{Point: crash.SandboxWoken, Visit: 1},
			{Point: crash.SandboxWaking, Visit: 1},
			{Point: crash.SandboxStopped, Visit: 1},
		}
	case "counter-lost":
		return []rig.Arm{{Point: crash.SandboxWoken, Visit: 1}, {Point: crash.SandboxFrozen, Visit: 1}, {Point: crash.OpResult, Visit: 1}}
	case "sleep", "hibernate":
		return []rig.Arm{{Point: crash.SandboxStopping, Visit: 1}, {Point: crash.SandboxStopped, Visit: 1}}
	}
	return nil
}

// visits are the numbers worth dying at: the first, the second, the middle and
// the last.
func visits(n int) []int {
	return slices.Compact(slices.Sorted(slices.Values([]int{1, min(2, n), (n + 1) / 2, n})))
}

// singles are the cases with one death.
func (m *Matrix) singles(looked []seen) []Case {
	var all []Case
	for _, s := range looked {
		if s.first != nil {
			continue
		}
		for _, p := range slices.Sorted(maps.Keys(s.count)) {
			if !strings.HasPrefix(string(p), s.kind.Only) {
				continue
			}
			for _, n := range visits(s.count[p]) {
				all = append(all, Case{Kind: s.kind, Arms: []rig.Arm{{Point: p, Visit: n}}})
			}
		}
	}
	return all
}

// pairs are the cases that die again while they recover.
func (m *Matrix) pairs(looked []seen) []Case {
	var all []Case
	for _, s := range looked {
		if s.first == nil {
			continue
		}
		for _, p := range slices.Sorted(maps.Keys(s.count)) {
			if strings.HasPrefix(string(p), "migrate.") {
				continue
			}
			ns := visits(s.count[p])
			if !strings.HasPrefix(string(p), "recover.") {
				ns = slices.Compact([]int{1, s.count[p]})
			}
			for _, n := range ns {
				all = append(all, Case{Kind: s.kind, Arms: append(slices.Clone(s.first), rig.Arm{Point: p, Visit: n})})
			}
		}
	}
	return all
}

// others are the cases of other deaths than a kill: a process that exits, one
// that panics, and, where others take over meanwhile, one that freezes and comes
// back.
func (m *Matrix) others(looked []seen) []Case {
	var all []Case
	for _, s := range looked {
		if s.first != nil {
			continue
		}
		for _, p := range slices.Sorted(maps.Keys(s.count)) {
			a := rig.Arm{Point: p, Visit: (s.count[p] + 1) / 2}
			if slices.Contains([]string{"exec", "queue", "child"}, s.kind.Name) {
				for _, death := range []crash.Death{crash.Exit, crash.Panic} {
					a.Death = death
					all = append(all, Case{Kind: s.kind, Arms: []rig.Arm{a}})
				}
			}
			if m.stores.Shared() && zombie(s.kind, a) {
				a.Death = crash.Freeze
				all = append(all, Case{Kind: s.kind.Beside(), Arms: []rig.Arm{a}})
			}
		}
	}
	return all
}

// zombie reports whether a freeze at a point makes sense. A runner has no lease, and
// other servers wait for a step of the schema.
func zombie(k play.Kind, a rig.Arm) bool {
	kinds := []string{"exec", "exec-person", "queue", "model-stream", "custom", "interrupt-exec", "hibernate", "wakeup", "question", "child", "tree", "delete"}
	return slices.Contains(kinds, k.Name) && !a.InRunner() && !strings.HasPrefix(string(a.Point), "migrate.")
}

// exhausting are the cases that die until the turn has no attempt left, and then
// on the way to saying so.
func (m *Matrix) exhausting() []Case {
	if m.Sandbox == rig.GVisor {
		return nil // what the kind of sandbox has no part in
	}
	const attempts = 6
	// One session's turn costs the server its life whenever it is taken up.
	beside, _ := play.Named("beside")
	loop := make([]rig.Arm, attempts)
	for n := range loop[1:] {
		loop[n+1] = rig.Arm{Point: crash.RecoverAttach, Visit: 1}
	}
	all := []Case{{Kind: beside, Arms: loop}}
	for _, name := range []string{"model-stream", "exec", "queue", "custom", "write"} {
		k, _ := play.Named(name)
		for _, p := range []crash.Point{crash.TurnFirstOp, crash.OpStarted, crash.OpSent, crash.RecoverCommitted} {
			var arms []rig.Arm
			for n := range attempts {
				a := rig.Arm{Point: p, Visit: 1}
				if n == 0 && p == crash.RecoverCommitted {
					a.Point = crash.TurnFirstOp // there is nothing to recover yet
				}
				arms = append(arms, a)
			}
			if name == "custom" && p == crash.OpSent || name == "exec" && p == crash.OpStarted {
				continue // later attempts do not come by there
			}
			all = append(all, Case{Kind: k, Arms: arms})
			for _, last := range []crash.Point{crash.RecoverFailing, crash.RecoverFailed} {
				all = append(all, Case{Kind: k, Arms: append(slices.Clone(arms), rig.Arm{Point: last, Visit: 1})})
			}
		}
	}
	return all
}

// choose takes at most limit cases: every point, what is done to sandboxes and to
// the work in them first, then every point with every kind, then whatever else the
// seed picks. The rest comes second.
func (m *Matrix) choose(all []Case, limit int) (chosen, rest []Case) {
	r := rand.New(rand.NewPCG(m.Seed, 1))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	points, cells := make(map[crash.Point]bool), make(map[string]bool)
	ranks := make([][]Case, 3)
	for _, c := range all {
		arm := c.Arms[len(c.Arms)-1]
		last := arm.Point
		cell := c.Kind.Name + " " + string(last) + "!" + string(arm.Death)
		rank := 2
		switch {
		case !points[last] || c.Kind.Look != nil && !c.Kind.KillsRunner && remote(c) == 0 && !cells[cell]:
			rank = 0
		case !cells[cell]:
			rank = 1
		}
		points[last], cells[cell] = true, true
		ranks[rank] = append(ranks[rank], c)
	}
	// A small sample has not room for every point.
	slices.SortStableFunc(ranks[0], func(a, b Case) int { return cmp.Compare(remote(a), remote(b)) })
	all = slices.Concat(ranks...)
	if limit <= 0 || len(all) <= limit {
		return all, nil
	}
	return all[:limit], all[limit:]
}

// remote is 0 for a case that dies while something is done to a sandbox.
func remote(c Case) int {
	if strings.HasPrefix(string(c.Arms[len(c.Arms)-1].Point), "sandbox.") {
		return 0
	}
	return 1
}

// spare picks cases for points at which nothing has died yet: how often a point
// is visited depends a little on timing.
func spare(rest []Case, missing []crash.Point, from int) []Case {
	const tries = 4
	var more []Case
	for _, p := range missing {
		n := 0
		for _, c := range rest {
			if c.Arms[len(c.Arms)-1].Point == p && n < tries {
				c.N = from + len(more) + 1
				more, n = append(more, c), n+1
			}
		}
	}
	return more
}
