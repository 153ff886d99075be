//go:build linux

package wall

import (
	"fmt"
	"slices"
	"testing"
)

func TestAnyTwoOfThePathsKindsAndOccasionsAreTogetherInACase(t *testing.T) {
	for _, found := range [][]string{nil, {"/.dormouse/run/new", "/.dormouse/run/new2", "/.dormouse/run/socket"}} {
		all := chosen(paths(found))
		together := make(map[string]bool)
		for _, c := range all {
			together[c.path+" "+string(c.kind)] = true
			together[c.path+" "+string(c.occasion)] = true
			together[string(c.kind)+" "+string(c.occasion)] = true
		}
		want := func(pair string) {
			if !together[pair] {
				t.Errorf("no case has %s", pair)
			}
		}
		for _, p := range paths(found) {
			for _, k := range kinds() {
				want(p + " " + string(k))
				for _, o := range occasions() {
					want(p + " " + string(o))
					want(string(k) + " " + string(o))
				}
			}
		}
		// Each path meets each kind: fewer cannot do, and many more would be no choice.
		if least := len(paths(found)) * len(kinds()); len(all) < least || len(all) > least*5/4 {
			t.Errorf("%d cases for %d pairs of a path and a kind", len(all), least)
		}
	}
}

func TestCasesAreChosenAlikeEachTime(t *testing.T) {
	names := func() (all []string) {
		for _, c := range Cases() {
			all = append(all, c.Name)
		}
		return all
	}
	first := names()
	if !slices.Equal(first, names()) {
		t.Error("two choices differ")
	}
	slices.Sort(first)
	if len(slices.Compact(first)) != len(Cases()) {
		t.Error("two cases have one name")
	}
	const enough = 40
	if len(first) < enough {
		t.Errorf("there are %d cases", len(first))
	}
}

func TestASampleHasEachKindAndEachOccasion(t *testing.T) {
	for _, n := range []int{17, 20, 40} {
		some := sample(Cases(), n)
		if len(some) != n {
			t.Errorf("a sample of %d has %d cases", n, len(some))
		}
		for _, k := range kinds() {
			if !slices.ContainsFunc(some, func(c Case) bool { return c.kind == k }) {
				t.Errorf("a sample of %d has no %s", n, k)
			}
		}
		for _, o := range occasions() {
			if !slices.ContainsFunc(some, func(c Case) bool { return c.occasion == o }) {
				t.Errorf("a sample of %d has no %s", n, o)
			}
		}
		if n >= 20 && !slices.ContainsFunc(some, func(c Case) bool { return c.play != nil }) {
			t.Errorf("a sample of %d has files only", n)
		}
	}
	if got := len(sample(Cases(), 0)); got != len(Cases()) {
		t.Errorf("no sample has %d cases", got)
	}
}

func TestNamesMadeOfIDsStandForOneAnother(t *testing.T) {
	found := []string{"/.dormouse/run/state/output/op_1a", "/.dormouse/run/state/output/op_2b", "/.dormouse/run/state/log"}
	if got, want := len(paths(found)), len(known())+1; got != want {
		t.Errorf("%d paths of %v, want %d: %v", got, found, want, fmt.Sprint(paths(found)))
	}
}
