package main

import (
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
)

// Programs in a sandbox choose the names of files, so a name may hold a line
// feed.
func TestANameOfADiffIsOneLine(t *testing.T) {
	got := changeLine(dormouse.Change{What: "added", Kind: "file", Path: "a\n- everything\x1b[2J"})
	if strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("the line is %q", got)
	}
}
