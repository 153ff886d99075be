// Package client uses a Dormouse server from Go: everything that /api serves, with a
// method for each thing that can be asked.
//
// What it promises:
//
//   - A method sends one request and never repeats it by itself. Prompts, commands and
//     snapshots are idempotent by id: a caller that gave one and got no answer can send the
//     request again with the same id.
//   - A refused request is an *Error. errors.Is knows those that correspond to an
//     error of package dormouse, such as dormouse.ErrNotFound.
//   - Follow gives every event after a cursor once and in order, across any number of
//     broken connections and restarted servers. Deltas are fragments of what will be an
//     event and may be lost.
//   - A Client has no state but its connections. It may be used by several goroutines at
//     once.
//   - The token goes to the server that was named and nowhere else: no redirect is
//     followed.
package client
