package runner

import (
	"errors"
	"testing"
	"testing/synctest"
)

func TestBudgetIsTakenAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, over := newBudget(10), make(chan struct{})
		if err := b.acquire(8, over); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 2)
		go func() { waits <- b.acquire(3, over) }()
		synctest.Wait()
		if len(waits) > 0 {
			t.Error("more was taken than there is")
		}
		b.release(1)
		synctest.Wait()
		if len(waits) != 1 || <-waits != nil {
			t.Error("what was given back is not taken")
		}
		go func() { waits <- b.acquire(1, over) }()
		synctest.Wait()
		close(over)
		if err := <-waits; !errors.Is(err, ErrClosed) {
			t.Errorf("whoever waits at the end gets %v", err)
		}
	})
}
