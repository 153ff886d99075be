// Package retryafter reads how long an HTTP response asks its client to wait.
package retryafter

import (
	"net/http"
	"strconv"
	"time"
)

// Of returns how long the header asks to wait before the next request, and 0 if it does not.
// Retry-After-Ms, which some model providers send, is finer and comes first.
func Of(h http.Header) time.Duration {
	for _, u := range []struct {
		header string
		unit   time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		n, err := strconv.ParseFloat(h.Get(u.header), 64)
		if err == nil && n >= 0 && n <= 24*3600*1000 {
			return time.Duration(n * float64(u.unit))
		}
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
