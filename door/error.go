// Package door is the ways into the server. Each door serves one API: it decodes,
// authorises, asks the session and encodes. What the doors share is here: the
// router, and the one table that turns an error into a reply.
package door

import (
	"context"
	"errors"
	"net/http"

	"github.com/dormouse-run/dormouse"
)

// Reply is what a client gets for an error.
type Reply struct {
	Status  int
	Type    string
	Message string
}

// Refusal is the error of a request that is refused before any session is asked.
type Refusal Reply

func (r *Refusal) Error() string { return r.Message }

// statusClosed is the status in the metrics of a request whose client has
// disconnected. It is never sent.
const statusClosed = 499

// replies maps errors to replies. The first row that matches counts.
var replies = []struct {
	err     error
	status  int
	kind    string
	message string // replaces the error's own
}{
	// The unknown outcome comes first: whatever else an error says, it decides what
	// the client must do.
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
	{dormouse.ErrNoVaultKey, http.StatusServiceUnavailable, "no_vault_key", "a vault key is missing, so secrets can be neither kept nor used; nothing was changed; the server's log and \"dormouse doctor\" say which"},
	{dormouse.ErrClosing, http.StatusServiceUnavailable, "closing", ""},
	{dormouse.ErrBehind, http.StatusServiceUnavailable, "behind", ""},
	{context.Canceled, statusClosed, "client_left", "the client left before the answer"},
}

// ReplyTo returns the reply to err. An error that is not in the table is a 500 whose
// text stays in the log.
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

// RemoteError returns the error that another server sent as a type and a message.
// errors.Is finds the same error in it as on that server.
func RemoteError(kind, message string) error {
	for _, row := range replies {
		if row.kind == kind {
			return &remoteError{row.err, message}
		}
	}
	return errors.New(message)
}

type remoteError struct {
	err     error
	message string
}

func (t *remoteError) Error() string { return t.message }
func (t *remoteError) Unwrap() error { return t.err }
