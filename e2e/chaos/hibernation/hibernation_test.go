package hibernation_test

import (
	"os"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/e2e/chaos/hibernation"
	"github.com/dormouse-run/dormouse/e2e/harness/rig"
)

func TestSessionsHibernateAndWakeWhileEverythingIsKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	built, err := rig.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := hibernation.Run(t.Context(), hibernation.Config{Binary: built, Seed: 1, Sessions: 6, Awake: 3, For: 15 * time.Second, Out: t.Output()})
	if err != nil {
		t.Fatalf("kept in %s: %v", s.Dir, err)
	}
	t.Log(s)
	if !s.OK() {
		t.Errorf("kept in %s:\n%s", s.Dir, s.Wrong())
	}
	if s.Hibernated == 0 || s.Restored == 0 || s.Kills == 0 || s.Records == 0 {
		t.Errorf("hardly anything happened: %s", s)
	}
}
