// Package client is the Go client of the API that a Dormouse server serves under /api. There
// is a method for every route. Vaults and their credentials, which are served under /v1
// alone, have methods too.
//
// What it promises:
//
//   - A method sends one request and never repeats it by itself. Prompts, commands and
//     snapshots are idempotent by id: a caller that gave one and got no answer can send the
//     request again with the same id.
//   - A refused request is an *Error, and an error that comes inside a stream or in the
//     output of a command a *StreamError. errors.Is finds in both the error of package
//     dormouse that the code stands for, such as dormouse.ErrNotFound.
//   - Follow yields every event after a cursor once and in order, across any number of
//     broken connections and restarted servers. Deltas are fragments of an event that is
//     not complete yet, and may be lost.
//   - A Client has no state but its connections, and is safe for concurrent use.
//   - The token is sent to the configured server only: redirects are not followed.
package client
