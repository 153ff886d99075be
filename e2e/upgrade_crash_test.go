package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/e2e/chaos/matrix"
	"github.com/dormouse-run/dormouse/e2e/harness/play"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// Servers die over the sessions that a version before left, at their first visits to a
// few points: while those sessions go on, and while a new one works beside them.
// "go run ./e2e/cmd/crash -past" plays the whole matrix so.
func TestACrashOverWhatAVersionBeforeWrote(t *testing.T) {
	var cases []matrix.Case
	for _, name := range []string{"mixed", "exec-cold"} {
		kind, ok := play.Named(name)
		if !ok {
			t.Fatalf("there is no kind %q", name)
		}
		for _, p := range []crash.Point{
			crash.LeaseClaimed, crash.LeaseReplay, crash.RecoverDeciding, crash.RecoverCommitted, crash.PromptCommitted, crash.TurnWritten,
			crash.OpSent, crash.OpFinished, crash.TurnEnded, crash.SandboxCreated, crash.SnapshotRecording, crash.SnapshotRecorded,
		} {
			cases = append(cases, matrix.Case{Kind: kind, Arms: []rig.Arm{{Point: p, Visit: 1}}})
		}
	}
	var said strings.Builder
	s, err := matrix.Run(t.Context(), matrix.Config{
		Binary: crashing(t), Past: filepath.Join("testdata", "upgrade", "6333ee6", "sqlite", "data.tar.gz"), Cases: cases, Parallel: 1, Seed: 1, Out: &said,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Failed) > 0 || s.Cases != len(cases) {
		t.Errorf("%s; not reached: %v\n%s", s, s.Unreached, said.String())
	}
}
