package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/retryafter"
)

// Error is a request that was refused: a response with a status of 300 or more.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code is the kind of error, such as not_found. It is empty if something other than
	// a Dormouse server answered, such as a proxy.
	Code string
	// Message is the text to show to people.
	Message string
	// Request is the id of the request; the server's log has more about it.
	Request string
	// RetryAfter is how long the server asked to wait before the next request; 0 if it
	// did not ask.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Status >= http.StatusInternalServerError {
		return fmt.Sprintf("%s (%d %s, %s)", e.Message, e.Status, e.Code, e.Request)
	}
	return e.Message
}

// codes maps the code in a response to the error of package dormouse that it stands for.
var codes = map[string]error{
	"unknown_outcome": dormouse.ErrUnknownOutcome,
	"damaged":         dormouse.ErrDamaged,
	"newer_log":       dormouse.ErrNewerLog,
	"terminated":      dormouse.ErrTerminated,
	"not_found":       dormouse.ErrNotFound,
	"too_large":       dormouse.ErrTooLarge,
	"invalid":         dormouse.ErrInvalid,
	"conflict":        dormouse.ErrConflict,
	"full":            dormouse.ErrFull,
	"lease_lost":      dormouse.ErrLeaseLost,
	"unavailable":     dormouse.ErrUnavailable,
	"closing":         dormouse.ErrClosing,
	"behind":          dormouse.ErrBehind,
	"no_vault_key":    dormouse.ErrNoVaultKey,

	// Those of the API under /v1.
	"not_found_error":       dormouse.ErrNotFound,
	"invalid_request_error": dormouse.ErrInvalid,
	"conflict_error":        dormouse.ErrConflict,
	"request_too_large":     dormouse.ErrTooLarge,
}

// Unwrap returns the error of package dormouse with the same code, or nil.
func (e *Error) Unwrap() error { return codes[e.Code] }

// StreamError is an error that the server sent inside a response that it had begun with
// status 200: a stream of events, or the output of a command.
type StreamError struct {
	// Code is the kind of error, such as not_found. Servers before this version send none.
	Code string
	// Message is the text to show to people.
	Message string
}

func (e *StreamError) Error() string { return e.Message }

// Unwrap returns the error of package dormouse with the same code, or nil.
func (e *StreamError) Unwrap() error { return codes[e.Code] }

// readError returns the *Error for a response. If the body is not the JSON of a Dormouse
// server, for example a proxy's HTML, the message is the HTTP status.
func readError(res *http.Response) error {
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Request string `json:"request_id"`
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if json.Unmarshal(b, &body) != nil || body.Error.Message == "" {
		body.Error.Message = "the server answered " + res.Status
	}
	return &Error{Status: res.StatusCode, Code: body.Error.Type, Message: body.Error.Message, Request: body.Request, RetryAfter: retryafter.Of(res.Header)}
}
