// Package client uses a Dormouse server from Go: everything that /api serves, with a
// method for each thing that can be asked.
//
// What it promises:
//
//   - A method sends one request and never sends it again by itself. Whoever has no
//     answer, and gave what it asked for an id of its own, asks again with the same id:
//     the same id twice is one prompt, one command, one snapshot.
//   - An answer that says no is an *Error. errors.Is knows those that correspond to an
//     error of package dormouse, such as dormouse.ErrNotFound.
//   - Follow gives every event after a cursor once and in order, across any number of
//     broken connections and restarted servers. Deltas are fragments of what will be an
//     event and may be lost.
//   - A Client holds nothing but connections. All of it may be used by several
//     goroutines at once.
//   - The token goes to the server that was named and nowhere else: no redirect is
//     followed.
package client
