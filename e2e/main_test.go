// Package e2e holds the real binary from outside: the scenarios, one test each,
// and what a killed process and a lost disk cache must not change.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/rig"
)

// built is the binary under test.
var built rig.Binary

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := rig.TempDir("dormouse-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if path := os.Getenv("DORMOUSE_BIN"); path != "" {
		built, err = rig.Beside(path)
	} else {
		built, err = rig.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
