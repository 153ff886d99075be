//go:build linux

package wall

import "slices"

// triple is one combination: the index of a value in each of the three lists.
type triple [3]int

// pairs are the three pairs of values in a triple. Each pair is two list numbers and an
// index in each of those lists.
func (t triple) pairs() [3][4]int {
	return [3][4]int{{0, 1, t[0], t[1]}, {0, 2, t[0], t[2]}, {1, 2, t[1], t[2]}}
}

// cover chooses triples so that any two values of different lists occur together in at
// least one (pairwise testing). It begins with the wanted triples, then takes greedily
// the one with the most missing pairs, and the first of several. So the result is
// deterministic.
func cover(lengths [3]int, wanted []triple) []triple {
	missing := make(map[[4]int]bool)
	var all []triple
	for a := range lengths[0] {
		for b := range lengths[1] {
			for c := range lengths[2] {
				all = append(all, triple{a, b, c})
				for _, p := range (triple{a, b, c}).pairs() {
					missing[p] = true
				}
			}
		}
	}
	var chosen []triple
	take := func(t triple) {
		chosen = append(chosen, t)
		for _, p := range t.pairs() {
			delete(missing, p)
		}
	}
	for _, t := range wanted {
		take(t)
	}
	for len(missing) > 0 {
		take(slices.MaxFunc(all, func(a, b triple) int { return missingIn(missing, a) - missingIn(missing, b) }))
	}
	return chosen
}

// missingIn counts the pairs of t that no chosen triple has yet.
func missingIn(missing map[[4]int]bool, t triple) (n int) {
	for _, p := range t.pairs() {
		if missing[p] {
			n++
		}
	}
	return n
}

// sample chooses n cases so that, as far as n allows, each kind of file and each
// occasion is in at least one. The rest are spread evenly over all other cases.
func sample(all []Case, n int) []Case {
	if n <= 0 || n >= len(all) {
		return all
	}
	want := make(map[string]bool)
	for _, k := range kinds() {
		want["kind "+string(k)] = true
	}
	for _, o := range occasions() {
		want["occasion "+string(o)] = true
	}
	adds := func(c Case) (n int) {
		for _, v := range []string{"kind " + string(c.kind), "occasion " + string(c.occasion)} {
			if want[v] {
				n++
			}
		}
		return n
	}
	taken := make([]bool, len(all))
	left := n
	for len(want) > 0 && left > 0 {
		best := 0
		for i, c := range all {
			if adds(c) > adds(all[best]) {
				best = i
			}
		}
		delete(want, "kind "+string(all[best].kind))
		delete(want, "occasion "+string(all[best].occasion))
		taken[best] = true
		left--
	}
	var others []int
	for i := range all {
		if !taken[i] {
			others = append(others, i)
		}
	}
	for i := range left {
		taken[others[i*len(others)/left]] = true
	}
	var chosen []Case
	for i, c := range all {
		if taken[i] {
			chosen = append(chosen, c)
		}
	}
	return chosen
}
