// Package door is the ways in. Each door speaks one dialect: it decodes,
// authorises, asks the session and encodes. What they share is here: the one
// table that turns an error into a reply.
package door

import (
	"context"
	"errors"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// Reply is how an error is told to a client.
type Reply struct {
	Status  int
	Type    string
	Message string
}

// Refusal is a request turned away before any session was asked.
type Refusal Reply

func (r *Refusal) Error() string { return r.Message }

// statusClosed is told to nobody: the client has left. It is for the counters.
const statusClosed = 499

// replies says how each error is told, what matters most first.
var replies = []struct {
	err     error
	status  int
	kind    string
	message string // instead of the error's own
}{
	// The outcome first: whatever else an error says, this decides what the
	// client must do.
	{dormouse.ErrUnknownOutcome, http.StatusServiceUnavailable, "unknown_outcome", "outcome unknown, send again with the same prompt id"},
	{dormouse.ErrDamaged, http.StatusConflict, "damaged", ""},
	{dormouse.ErrNewerLog, http.StatusServiceUnavailable, "newer_log", ""}, // another server may be able to
	{dormouse.ErrTerminated, http.StatusConflict, "terminated", ""},
	{dormouse.ErrNotFound, http.StatusNotFound, "not_found", ""},
	{dormouse.ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large", ""},
	{dormouse.ErrInvalid, http.StatusBadRequest, "invalid", ""},
	{dormouse.ErrConflict, http.StatusConflict, "conflict", ""},
	{dormouse.ErrFull, http.StatusInsufficientStorage, "full", "no space left on the server; nothing was changed"},
	{dormouse.ErrLeaseLost, http.StatusServiceUnavailable, "lease_lost", "another server writes this session now; send again"},
	{dormouse.ErrUnavailable, http.StatusServiceUnavailable, "unavailable", "the database or the blob store cannot be reached now; nothing was changed, send again"},
	{dormouse.ErrClosing, http.StatusServiceUnavailable, "closing", ""},
	{dormouse.ErrBehind, http.StatusServiceUnavailable, "behind", ""},
	{context.Canceled, statusClosed, "client_left", "the client left before the answer"},
}

// ReplyTo says how err is told to a client. What is not in the table is a 500
// whose text stays in the log.
func ReplyTo(err error) Reply {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return Reply(*r)
	}
	for _, row := range replies {
		if !errors.Is(err, row.err) {
			continue
		}
		if row.message == "" {
			row.message = err.Error()
		}
		return Reply{Status: row.status, Type: row.kind, Message: row.message}
	}
	return Reply{Status: http.StatusInternalServerError, Type: "internal", Message: "internal error; the server's log has the details"}
}

// Told is the error that another server told as a type and a message. It is the
// same error here, as far as errors.Is can tell.
func Told(kind, message string) error {
	for _, row := range replies {
		if row.kind == kind {
			return &told{row.err, message}
		}
	}
	return errors.New(message)
}

type told struct {
	err     error
	message string
}

func (t *told) Error() string { return t.message }
func (t *told) Unwrap() error { return t.err }
