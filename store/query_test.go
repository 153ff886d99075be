package store_test

import (
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/store"
)

func TestAWindowIsInWholeMicroseconds(t *testing.T) {
	at := func(ns int) time.Time { return time.Date(2026, 1, 2, 3, 4, 5, ns, time.UTC) }
	for n, c := range []struct {
		q           store.Query
		from, until time.Time
	}{
		{},
		{q: store.Query{CreatedFrom: at(1000), CreatedUntil: at(3000)}, from: at(1000), until: at(3000)},
		{q: store.Query{CreatedFrom: at(1001), CreatedUntil: at(3999)}, from: at(2000), until: at(3000)},
		{q: store.Query{CreatedAfter: at(1000), CreatedBefore: at(3000)}, from: at(2000), until: at(2000)},
		{q: store.Query{CreatedAfter: at(1999), CreatedBefore: at(3001)}, from: at(2000), until: at(3000)},
		{q: store.Query{CreatedAfter: at(1000), CreatedFrom: at(1000)}, from: at(2000)},
		{q: store.Query{CreatedAfter: at(1000), CreatedFrom: at(9000)}, from: at(9000)},
		{q: store.Query{CreatedBefore: at(3000), CreatedUntil: at(3000)}, until: at(2000)},
		{q: store.Query{CreatedBefore: at(9000), CreatedUntil: at(3000)}, until: at(3000)},
	} {
		from, until := c.q.Window()
		if !from.Equal(c.from) || !until.Equal(c.until) {
			t.Errorf("window %d is %v to %v, want %v to %v", n, from, until, c.from, c.until)
		}
	}
}
