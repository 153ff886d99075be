package v1

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/door"
	"github.com/dormouse-run/dormouse/session/law"
)

// kinds is the type of an error by its status. Any other is an api_error.
var kinds = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusMethodNotAllowed:      "invalid_request_error",
	http.StatusConflict:              "conflict_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

// reply is what a client gets for an error.
type reply struct {
	status  int
	message string
	// code names the cause for programs, where the API has a name for it.
	code string
	// final says that sending the same request again is useless, or not safe.
	final bool
}

// coded is implemented by errors that have a name in the API.
type coded interface{ ErrorCode() string }

// replyTo returns the reply of this API to err.
func replyTo(err error) reply {
	common := door.ReplyTo(err)
	r := reply{status: common.Status, message: sentence(common.Message)}
	switch {
	case errors.Is(err, dormouse.ErrUnknownOutcome):
		// Clients of this API retry by themselves, without anything that makes the
		// request idempotent.
		r.message, r.final = "outcome unknown: look whether it was done before sending it again", true
	case errors.Is(err, dormouse.ErrNoVaultKey):
		r.final = true // it is for the operator to put the key back
	case errors.Is(err, dormouse.ErrTerminated):
		r.status = http.StatusBadRequest
	}
	if r.status == http.StatusConflict {
		r.final = true
	}
	if c, ok := errors.AsType[interface {
		error
		coded
	}](err); ok {
		r.code = c.ErrorCode()
	}
	return r
}

// errorResponse is the response that this API has for an error.
func errorResponse(err error, request string) door.ErrorResponse {
	r := replyTo(err)
	return door.ErrorResponse{Status: r.status, Headers: r.headers(), Body: r.body(request)}
}

func (r reply) headers() map[string]string {
	h := make(map[string]string)
	if r.final {
		h["X-Should-Retry"] = "false"
	}
	if r.status == http.StatusServiceUnavailable && !r.final {
		h["Retry-After"] = "1"
	}
	if r.status == http.StatusUnauthorized {
		h["Www-Authenticate"] = "Bearer"
	}
	return h
}

func (r reply) body(request string) any {
	type details struct {
		Code string `json:"error_code"`
	}
	type cause struct {
		Type    string   `json:"type"`
		Message string   `json:"message"`
		Details *details `json:"details,omitempty"`
	}
	body := struct {
		Type    string `json:"type"`
		Error   cause  `json:"error"`
		Request string `json:"request_id"`
	}{Type: "error", Request: request}
	kind, ok := kinds[r.status]
	if !ok {
		kind = "api_error"
	}
	body.Error = cause{Type: kind, Message: strings.ToValidUTF8(r.message, "\uFFFD")}
	if r.code != "" {
		body.Error.Details = &details{r.code}
	}
	return body
}

// sentence is the message of an error without the suffix for its kind, which the type
// says.
func sentence(message string) string {
	for _, kind := range []error{dormouse.ErrInvalid, dormouse.ErrConflict, dormouse.ErrTooLarge} {
		message = strings.TrimSuffix(message, ": "+kind.Error())
	}
	return message
}

// refusef is the error of a request that is refused.
func refusef(status int, format string, args ...any) error {
	return &door.Refusal{Status: status, Type: kinds[status], Message: fmt.Sprintf(format, args...)}
}

// invalidf is the error of a request that is invalid.
func invalidf(format string, args ...any) error {
	return refusef(http.StatusBadRequest, format, args...)
}

// errKeyUsed refuses another request under a key that was used before.
var errKeyUsed = refusef(http.StatusConflict, "this idempotency-key was used for another request")

// wrongState turns the conflict of a command with the state of a session into an
// invalid request, as this API has it: clients do not send those again.
func wrongState(err error) error {
	switch {
	case errors.Is(err, law.ErrOtherRequest):
		return errKeyUsed
	case errors.Is(err, dormouse.ErrConflict):
		return refusef(http.StatusBadRequest, "%s", sentence(door.ReplyTo(err).Message))
	}
	return err
}

func shorten(s string) string { return door.Shorten(strings.ToValidUTF8(s, "\uFFFD")) }
