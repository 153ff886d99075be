//go:build linux

package impostor

import (
	"bytes"
	"testing"

	"github.com/dormouse-run/dormouse/runner"
)

func TestOneShapeOfEachListIsTakenByTheServer(t *testing.T) {
	within := runner.FromRunner()
	for _, f := range Repeated() {
		if f.String() == "bulk" { // it belongs to what follows
			continue
		}
		taken := 0
		for _, shape := range f.shapes(within) {
			frame := Framed(runner.KindReply, f.JSON(runner.KindReply, 1, shape))
			if _, err := runner.ReadFrame(bytes.NewReader(frame), within); err == nil {
				taken++
			}
		}
		if taken == 0 {
			t.Errorf("%s: whatever is sent is refused, so that nothing is tried", f)
		}
	}
	frame := bulky()
	if f, err := runner.ReadFrame(bytes.NewReader(frame), within); err != nil || len(f.Report.Result.Output) != within.Body {
		t.Errorf("bulk is read as %+v, %v", f.Kind, err)
	}
}
