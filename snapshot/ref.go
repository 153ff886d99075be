package snapshot

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// Ref is how people and agents refer to a snapshot: a JSON document that names the
// snapshot and its session, and authenticates both.
//
//	{"providerId":"dormouse","ref":{"session":"sesn_…","snapshot":"snap_…","mac":"…"}}
//
// Unknown members of the inner object belong to the program that added them, and
// round-trip.
type Ref struct {
	Session  dormouse.SessionID
	Snapshot dormouse.SnapshotID
	mac      [sha256.Size]byte
	inner    json.RawMessage // as it was written
}

const (
	// Provider is the name of the issuer of refs.
	Provider = "dormouse"
	// MaxRef is how long a ref may be.
	MaxRef = 64 << 10
)

// Key is what refs are authenticated with.
type Key [32]byte

// String hides the key.
func (Key) String() string { return "[secret]" }

// GoString hides the key.
func (Key) GoString() string { return "[secret]" }

// sum authenticates that a snapshot belongs to a session.
func (k Key) sum(session dormouse.SessionID, snapshot dormouse.SnapshotID) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, k[:])
	for _, part := range []string{"snapshot ref", string(session), string(snapshot)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Sum(sum[:0])
	return sum
}

// Mint makes the ref of a session's snapshot.
func Mint(k Key, session dormouse.SessionID, snapshot dormouse.SnapshotID) Ref {
	r := Ref{Session: session, Snapshot: snapshot, mac: k.sum(session, snapshot)}
	r.inner = json.RawMessage(fmt.Sprintf(`{"session":%q,"snapshot":%q,"mac":"%x"}`, session, snapshot, r.mac))
	return r
}

// Check returns dormouse.ErrNotFound unless the ref was minted with this key.
func (r Ref) Check(k Key) error {
	want := k.sum(r.Session, r.Snapshot)
	if !hmac.Equal(want[:], r.mac[:]) {
		return fmt.Errorf("check a snapshot ref: %w", dormouse.ErrNotFound)
	}
	return nil
}

// Bytes is the ref as JSON.
func (r Ref) Bytes() []byte {
	return fmt.Appendf(nil, `{"providerId":%q,"ref":%s}`, Provider, r.inner)
}

// MarshalJSON is Bytes.
func (r Ref) MarshalJSON() ([]byte, error) {
	if len(r.inner) == 0 {
		return nil, errors.New("write a snapshot ref: there is none")
	}
	return r.Bytes(), nil
}

// UnmarshalJSON is ParseRef.
func (r *Ref) UnmarshalJSON(b []byte) (err error) {
	*r, err = ParseRef(b)
	return err
}

// ParseRef decodes a ref. It is not authenticated before Check.
func ParseRef(b []byte) (Ref, error) {
	r, err := parseRef(b)
	if err != nil {
		return Ref{}, fmt.Errorf("read a snapshot ref: %w", err)
	}
	return r, nil
}

func parseRef(b []byte) (r Ref, err error) {
	if len(b) > MaxRef {
		return r, fmt.Errorf("it has more than %d bytes: %w", MaxRef, dormouse.ErrTooLarge)
	}
	outer, err := members(b)
	if err != nil {
		return r, err
	}
	var by, session, snapshot, mac string
	if err := text(outer, "providerId", &by); err != nil {
		return r, err
	}
	if by != Provider {
		return r, fmt.Errorf("it is of another provider: %w", dormouse.ErrInvalid)
	}
	inner, err := members(outer["ref"])
	if err != nil {
		return r, fmt.Errorf("ref: %w", err)
	}
	if len(outer) != 2 { //nolint:mnd // these two
		return r, fmt.Errorf("it has more than a providerId and a ref: %w", dormouse.ErrInvalid)
	}
	for name, to := range map[string]*string{"session": &session, "snapshot": &snapshot, "mac": &mac} {
		if err := text(inner, name, to); err != nil {
			return r, err
		}
	}
	r = Ref{Session: dormouse.SessionID(session), Snapshot: dormouse.SnapshotID(snapshot), inner: outer["ref"]}
	if err := errors.Join(r.Session.Validate(), r.Snapshot.Validate()); err != nil {
		return r, err
	}
	if n, err := hex.Decode(r.mac[:], []byte(mac)[:min(len(mac), hex.EncodedLen(len(r.mac)))]); err != nil || n != len(r.mac) || len(mac) != hex.EncodedLen(n) {
		return r, fmt.Errorf("its mac is none: %w", dormouse.ErrInvalid)
	}
	return r, nil
}

// text decodes a member of an object that must be a string.
func text(object map[string]json.RawMessage, name string, to *string) error {
	if v := object[name]; len(v) == 0 || v[0] != '"' || json.Unmarshal(v, to) != nil {
		return fmt.Errorf("its %s is no string: %w", name, dormouse.ErrInvalid)
	}
	return nil
}

// members returns the members of an object. No name is there twice.
func members(b []byte) (map[string]json.RawMessage, error) {
	all, err := closedjson.Members(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, dormouse.ErrInvalid)
	}
	return all, nil
}
