package dormouse

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
)

// The typed names of things. Each carries its prefix, so that a name alone says
// what it names.
type (
	// SessionID names one session for ever.
	SessionID string
	// ThreadID names one agent's thread of events inside a session.
	ThreadID string
	// EventID is the public name of an event; a prompt keeps its own from the
	// moment it is queued.
	EventID string
	// TurnID names one turn.
	TurnID string
	// OpID names one side effect: equal ids mean the same effect.
	OpID string
	// SnapshotID names one snapshot of a workspace.
	SnapshotID string
)

// The prefixes of the ids.
const (
	SessionPrefix  = "sesn_"
	ThreadPrefix   = "sthr_"
	EventPrefix    = "sevt_"
	TurnPrefix     = "turn_"
	OpPrefix       = "op_"
	SnapshotPrefix = "snap_"
)

// maxID bounds every id that crosses a boundary.
const maxID = 128

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// FormatID makes an id of its prefix and 128 random bits.
func FormatID(prefix string, bits [16]byte) string {
	return prefix + idEncoding.EncodeToString(bits[:])
}

// DeriveID derives an id from parts: the same parts give the same
// id, and no two lists of parts share one.
func DeriveID(prefix string, parts ...string) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return FormatID(prefix, [16]byte(h.Sum(nil)))
}

// PrimaryThread is the thread every session has from its first event.
func PrimaryThread(id SessionID) ThreadID {
	return ThreadID(DeriveID(ThreadPrefix, string(id), "primary"))
}

// Validate refuses what cannot be a session's name.
func (id SessionID) Validate() error { return validateID(string(id), SessionPrefix) }

// Validate refuses what cannot be an event's name.
func (id EventID) Validate() error { return validateID(string(id), EventPrefix) }

// Validate refuses what cannot be a thread's name.
func (id ThreadID) Validate() error { return validateID(string(id), ThreadPrefix) }

// Validate refuses what cannot be an op's name.
func (id OpID) Validate() error { return validateID(string(id), OpPrefix) }

// Validate refuses what cannot be a snapshot's name.
func (id SnapshotID) Validate() error { return validateID(string(id), SnapshotPrefix) }

func validateID(id, prefix string) error {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || rest == "" || len(id) > maxID {
		return fmt.Errorf("%q does not name anything that begins with %q: %w", truncate(id, 40), prefix, ErrInvalid)
	}
	for _, c := range []byte(rest) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' && c != '-' {
			return fmt.Errorf("%q has a character no id has: %w", truncate(id, 40), ErrInvalid)
		}
	}
	return nil
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
