package main

import (
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

// Whoever is in a sandbox chooses what its files are called.
func TestANameOfADiffIsOneLine(t *testing.T) {
	got := changeLine(dormouse.Change{What: "added", Kind: "file", Path: "a\n- everything\x1b[2J"})
	if strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("the line is %q", got)
	}
}
