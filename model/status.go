package model

import "net/http"

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
