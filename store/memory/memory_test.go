package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
	"github.com/dormouse-run/dormouse/store/storetest"
)

func TestStoreKeepsItsPromises(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return new(memory.Store) })
}

func TestServerKeepsThePromisesOfAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s := new(memory.Store).Server()
		if _, err := s.Join(t.Context(), store.Server{Name: "only"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestServersKeepTheirPromises(t *testing.T) {
	storetest.RunShared(t, func(*testing.T) (a, b store.Store) {
		s := new(memory.Store)
		return s.Server(), s.Server()
	})
}

func TestAStoreForOneServerIsNotShared(t *testing.T) {
	if _, ok := store.Store(new(memory.Store)).(store.Shared); ok {
		t.Error("a store that nobody joined is shared")
	}
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

func TestLeasesRunOutByVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memory.Store).Server()
		if _, err := s.Join(t.Context(), store.Server{}, time.Minute); err != nil {
			t.Fatal(err)
		}
		began := s.Now()
		time.Sleep(time.Minute - time.Nanosecond)
		if err := s.Renew(t.Context()); err != nil {
			t.Errorf("renew in time: %v", err)
		}
		time.Sleep(time.Minute)
		if err := s.Renew(t.Context()); !errors.Is(err, dormouse.ErrLeaseLost) {
			t.Errorf("renew = %v, want ErrLeaseLost", err)
		}
		if passed := s.Now().Sub(began); passed != 2*time.Minute-time.Nanosecond {
			t.Errorf("%v passed", passed)
		}
	})
}
