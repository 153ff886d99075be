package model

import (
	"net/http"
	"strconv"
	"time"
)

// StatusOverloaded is the status that providers use when they are overloaded.
const StatusOverloaded = 529

// KindOf says what a provider's status means for the caller.
func KindOf(status int) ErrorKind {
	switch {
	case status == http.StatusTooManyRequests:
		return RateLimited
	case status == StatusOverloaded, status == http.StatusServiceUnavailable:
		return Overloaded
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict:
		return RequestFailed
	}
	return Rejected
}

// RetryAfter is what a provider asked for, in its finer unit where it gave one.
func RetryAfter(h http.Header) time.Duration {
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
