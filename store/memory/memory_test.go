package memory_test

import (
	"testing"
	"testing/synctest"

	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/store/storetest"
)

func TestStoreKeepsItsPromises(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return new(memory.Store) })
}

func TestStoreWorksUnderVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memory.Store)
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
}
