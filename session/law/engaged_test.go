package law_test

import (
	"errors"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

func TestASessionThatWasJustAskedIsNotAtRest(t *testing.T) {
	for _, v := range []law.Verb{law.Archive{}, law.Delete{Resting: true}, retool("other")} {
		w := newWorld(t, dormouse.Created{})
		w.must(w.prompt("p1"))
		if status := law.StatusOf(w.state); status != dormouse.StatusRunning {
			t.Fatalf("it is %s", status)
		}
		if _, err := w.try(v); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("%T: %v", v, err)
		}
	}
}
