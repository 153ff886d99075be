package postgres

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheClockFollowsTheDatabaseAndNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		database := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) // its clock, now
		last := time.Time{}
		pass := func(d time.Duration) {
			for range 10 {
				time.Sleep(d / 10)
				if now := c.now(); now.Before(last) {
					t.Fatalf("%v after %v", now, last)
				} else {
					last = now
				}
			}
			database = database.Add(d)
		}
		renew := func() {
			asked := time.Now()
			pass(100 * time.Millisecond)
			said := database
			pass(100 * time.Millisecond)
			c.adjust(said, asked, time.Now())
		}
		ahead := func(want time.Duration) {
			t.Helper()
			if got := c.now().Sub(database); got != want {
				t.Errorf("%v ahead of the database, want %v", got, want)
			}
		}
		c.adjust(database, time.Now(), time.Now())
		pass(time.Hour)
		ahead(0)

		asked, said := time.Now(), database // the caller was paused, and the answer is old
		pass(5 * time.Second)
		c.adjust(said, asked, time.Now())
		ahead(0)

		database = database.Add(time.Hour) // it was set forward
		renew()
		ahead(0)

		database = database.Add(-10 * time.Minute) // it was set back
		renew()
		ahead(10*time.Minute - 50*time.Millisecond)
		pass(time.Minute)
		renew()
		pass(10 * time.Minute)
		renew()
		pass(10 * time.Minute)
		renew()
		ahead(0)
	})
}
