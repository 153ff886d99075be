package session_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session/law"
)

// The session is given up in the store, becomes due and is taken again, all
// before the actor that gave it up has heard that it did.
func TestASessionTakenFromAnActorOnItsWayOutIsLoadedAgain(t *testing.T) {
	together(t, 1, func(t *testing.T, f *cluster) {
		a := f.servers[0]
		a.create(dormouse.Created{})
		a.view.slow.Store(int64(2 * time.Second))
		err := a.do(law.Schedule{
			ID: "wake_a", At: time.Now().Add(31 * time.Second), Content: []dormouse.Block{dormouse.Text(`SCRIPT[{"text":"awake"}]`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		settle(40 * time.Second)
		if texts := a.texts(); len(texts) != 1 {
			t.Errorf("a wake-up after 31 s brought %q", texts)
		}
		a.checked()
	})
}
