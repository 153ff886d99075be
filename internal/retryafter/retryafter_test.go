package retryafter_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dormouse-run/dormouse/internal/retryafter"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		after, milliseconds string
		want                time.Duration
	}{
		{"", "", 0},
		{"2", "", 2 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{"2", "1500", 1500 * time.Millisecond},
		{"2", "soon", 2 * time.Second},
		{"0", "", 0},
		{"-1", "", 0},
		{"NaN", "", 0},
		{"1e300", "", 0},
		{"soon", "", 0},
		{"Sat, 01 Jan 2000 00:01:00 GMT", "", time.Minute}, // the clock of synctest begins in 2000
		{"Fri, 31 Dec 1999 23:59:00 GMT", "", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := retryafter.Of(http.Header{"Retry-After": {c.after}, "Retry-After-Ms": {c.milliseconds}}); got != c.want {
				t.Errorf("Retry-After %q, Retry-After-Ms %q: %s", c.after, c.milliseconds, got)
			}
		})
	}
}
