package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/rig"
)

// gatedRunner makes runners that do nothing, not even answer, until open is
// called.
func gatedRunner(t *testing.T) (open func(), change func(*rig.Server)) {
	t.Helper()
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	return func() { must(t, os.WriteFile(gate, nil, 0o600)) }, func(s *rig.Server) {
		s.Runner = filepath.Join(dir, "runner")
		text := fmt.Sprintf("#!/bin/sh\nuntil [ -e %s ]; do sleep 0.01; done\nexec %s \"$@\"\n", gate, built.Runner)
		must(t, os.WriteFile(s.Runner, []byte(text), 0o700))
	}
}
