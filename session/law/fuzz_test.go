package law_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// FuzzReplay folds logs that no session would have. Whatever they hold, the
// fold ends, shows a phase, can be cached and gives the same again.
func FuzzReplay(f *testing.F) {
	for _, s := range situations() {
		var lines bytes.Buffer
		for _, e := range s.make(f).log {
			lines.Write(dormouse.Encode(e))
			lines.WriteByte('\n')
		}
		f.Add(lines.Bytes())
	}
	f.Add([]byte(`{"seq":1,"type":"turn.started","payload":{"turn":"turn_x"}}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		var events []dormouse.Event
		var s law.State
		for line := range bytes.Lines(lines) {
			var e dormouse.Event
			if json.Unmarshal(line, &e) != nil {
				continue
			}
			events = append(events, e)
			s = law.Apply(s, e)
			law.Want(s)
		}
		if law.PhaseOf(s) == "" || law.StatusOf(s) == "" {
			t.Error("no phase")
		}
		again, rows := law.Project(law.State{}, events)
		if diff := cmp.Diff(s, again); diff != "" {
			t.Errorf("the same log folds to something else: %s", diff)
		}
		if rows.Session.Phase != law.PhaseOf(s) {
			t.Error("the row shows another phase than the log")
		}
		raw := dormouse.Encode(s)
		var cached law.State
		if err := json.Unmarshal(raw, &cached); err != nil {
			t.Errorf("a cached state cannot be read: %v", err)
		}
	})
}
