package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// Error is an error body that a server answered with.
type Error struct {
	// Status is that of HTTP.
	Status int
	// Code is the kind of error, such as not_found; empty if it was no Dormouse server
	// that answered.
	Code string
	// Message is for people.
	Message string
	// Request is the id under which the server's log has more.
	Request string
}

func (e *Error) Error() string {
	if e.Status >= http.StatusInternalServerError {
		return fmt.Sprintf("%s (%d %s, %s)", e.Message, e.Status, e.Code, e.Request)
	}
	return e.Message
}

// codes are the errors of package dormouse by their code in an error body.
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
}

// Unwrap is the error of package dormouse that it corresponds to, or nil.
func (e *Error) Unwrap() error { return codes[e.Code] }

// readError decodes an error body. One that is not JSON, such as that of a proxy in between,
// becomes an error with its status.
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
	return &Error{Status: res.StatusCode, Code: body.Error.Type, Message: body.Error.Message, Request: body.Request}
}
