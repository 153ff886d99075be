package session_test

import (
	"errors"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
)

func TestASessionThatWasJustAskedIsNotAtRest(t *testing.T) {
	for _, v := range []session.Verb{session.Archive{}, session.Delete{Resting: true}, retool("other")} {
		w := newWorld(t, dormouse.Created{})
		w.must(w.prompt("p1"))
		if status := session.StatusOf(w.state); status != dormouse.StatusRunning {
			t.Fatalf("it is %s", status)
		}
		if _, err := w.try(v); !errors.Is(err, dormouse.ErrConflict) {
			t.Errorf("%T: %v", v, err)
		}
	}
}
