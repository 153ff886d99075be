package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse/agent"
	"github.com/dormouse-run/dormouse/model"
)

var _ agent.Priced = models{}

func TestPricesAreReadPerModel(t *testing.T) {
	got, err := parsePrices([]string{"a=3/15", "b=1/2/0.1/1.25", "c=0/0"})
	if err != nil {
		t.Fatal(err)
	}
	m := models{prices: got}
	for name, want := range map[string]model.Price{
		"a": {Input: 3, Output: 15, CacheRead: 3, CacheWrite: 3}, "b": {Input: 1, Output: 2, CacheRead: 0.1, CacheWrite: 1.25}, "nobody": {},
	} {
		if diff := cmp.Diff(want, m.Price(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPricesThatCannotBeMeantAreRefused(t *testing.T) {
	for _, given := range []string{"", "a", "a=", "a=1", "a=1/2/3", "a=1/2/3/4/5", "=1/2", "a=1/x", "a=-1/2", "a=NaN/2", "a=1/Inf", "a=1//"} {
		if got, err := parsePrices([]string{given}); err == nil {
			t.Errorf("%q was read as %v", given, got)
		}
	}
	if _, err := parsePrices([]string{"a=1/2", "a=1/3"}); err == nil || !strings.Contains(err.Error(), "two prices") {
		t.Errorf("a price twice: %v", err)
	}
}
