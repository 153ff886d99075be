package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse/internal/sleep"
)

func TestItTakesAsLongAsItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := sleep.For(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestAContextThatEndsIsTheEndOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why, began := errors.New("enough"), time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
		defer cancel()
		for _, d := range []time.Duration{time.Hour, time.Hour, 0, -1} {
			if err := sleep.For(ctx, d); !errors.Is(err, why) {
				t.Errorf("%s: %v", d, err)
			}
		}
		if time.Since(began) != time.Minute {
			t.Errorf("it took %s", time.Since(began))
		}
	})
}

func TestNoTimeIsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, d := range []time.Duration{0, -time.Second} {
			if err := sleep.For(t.Context(), d); err != nil || !time.Now().Equal(began) {
				t.Errorf("%s: %v", d, err)
			}
		}
	})
}
