// Package peer is the protocol between servers that share a store: both ends of it.
// A server asks the one that owns a session to carry out a command, or to stream
// the session's events and deltas.
//
// Servers authenticate each other by the store's key. A request is signed for one
// incarnation of one server, with a time of the database's clock and a nonce: a replayed
// request is refused, and so is a request for an incarnation that is gone, by the server
// that has its address now. A request of a server without a lease is refused too: it may
// come late. The answer is signed for its request, and everything that follows, either
// way, is sealed frame by frame up to its end. So an attacker on the path can only delay
// traffic and cut it off, which is noticed. He can read requests, but not answers.
//
// An answer that is not signed decides nothing: the outcome of the request is
// unknown. To make that rare, a connection begins with a handshake that changes
// nothing.
package peer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/session/feed"
)

// Prefix is where the routes are.
const Prefix = "/internal/"

const (
	doPath     = Prefix + "do"
	followPath = Prefix + "follow"
	whoPath    = Prefix + "who"
)

const (
	// maxBody bounds a request. What a client may send to /api is larger here, where
	// it is JSON in JSON.
	maxBody = 96 << 20
	// maxLine bounds a line of a stream, and maxEvent an event in it: a follower reads a
	// larger one from the log.
	maxLine  = 1 << 20
	maxEvent = 256 << 10
)

const (
	// heartbeat is how often a stream without events sends an empty line, and
	// heartbeatTimeout how long it may send nothing before it counts as dead.
	heartbeat        = 2 * time.Second
	heartbeatTimeout = 10 * time.Second
)

// do is a command for another server's session.
type do struct {
	Session dormouse.SessionID `json:"session"`
	By      dormouse.Actor     `json:"by"`
	Verb    string             `json:"verb"`
	Args    json.RawMessage    `json:"args"`
}

// done says that a command was carried out, or had been before.
type done struct {
	Repeated bool `json:"repeated,omitempty"`
}

// follow asks for a session's events after a cursor.
type follow struct {
	Session dormouse.SessionID `json:"session"`
	After   uint64             `json:"after"`
}

// refusal is an error as it is sent.
type refusal struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// notMe says that a server is not the one that the request is for, or not any more.
const notMe = "not_me"

// inDoubt says that a request was refused that may have been carried out before.
const inDoubt = "in_doubt"

// otherRequest says that another request was taken under the same name.
const otherRequest = "other_request"

// staleSender says that the server which asks has lost its lease, or the session that it
// asks for.
const staleSender = "stale_sender"

// line is one line of a stream: something relayed, why the stream ends, or nothing,
// which is a heartbeat.
type line struct {
	feed.Relayed
	End *refusal `json:"end,omitempty"`
}

func decodeLine(b []byte) (line, error) {
	var l line
	if err := decode(b, &l); err != nil {
		return l, err
	}
	things := 0
	for _, there := range []bool{l.Event != nil, l.Delta != nil, l.Upto != 0, l.End != nil} {
		if there {
			things++
		}
	}
	if things > 1 || l.Event != nil && l.Event.Seq == 0 {
		return l, fmt.Errorf("a line says more than one thing, or nothing: %w", dormouse.ErrInvalid)
	}
	return l, nil
}

// decode reads one JSON value and refuses whatever v does not know.
func decode(b []byte, v any) error {
	if err := closedjson.Decode(b, v); err != nil {
		return fmt.Errorf("%w: %w", dormouse.ErrInvalid, err)
	}
	return nil
}

// encode encodes v as one line of JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode for another server: %w", err)
	}
	return b.Bytes(), nil
}
