package dormouse

import "errors"

// Errors that callers are expected to test for with errors.Is. door/error.go is
// the one table that turns them into replies.
var (
	// ErrNotFound: it does not exist, or the caller may not see it.
	ErrNotFound = errors.New("not found")
	// ErrInvalid: the request can never be right as it stands.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: a body or a field is over its limit.
	ErrTooLarge = errors.New("too large")
	// ErrConflict: the request is valid, but not in this state, or not a second time.
	ErrConflict = errors.New("conflict")
	// ErrTerminated: the session has ended and takes no more.
	ErrTerminated = errors.New("session is terminated")
	// ErrLeaseLost: another server has claimed this session under a newer epoch and
	// writes it now.
	ErrLeaseLost = errors.New("lease lost")
	// ErrUnknownOutcome: the write may or may not have happened.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrDamaged: the session's log cannot be read; it can be ended and deleted.
	ErrDamaged = errors.New("log is damaged")
	// ErrNewerLog: only a newer program can fold the session's log; nothing was changed.
	ErrNewerLog = errors.New("log needs a newer program")
	// ErrFull: the disk is full; nothing was changed.
	ErrFull = errors.New("no space left")
	// ErrUnavailable: the database or the blobs cannot be reached now; nothing was
	// changed.
	ErrUnavailable = errors.New("storage unavailable")
	// ErrNoVaultKey: the key that a secret is sealed under, or should be, is not there;
	// nothing was changed.
	ErrNoVaultKey = errors.New("vault key is missing")
	// ErrBehind: a follower fell behind the ring buffer; it comes back with its cursor.
	ErrBehind = errors.New("follower fell behind")
	// ErrClosing: the server is shutting down.
	ErrClosing = errors.New("server is shutting down")
)
