// Package vault keeps credentials at rest: secrets that are sealed before they are
// stored, and opened only where a request leaves.
//
// It promises that a Secret cannot be printed, logged or marshalled; that a sealed
// value opens only in the place it was sealed for; and that a key which is missing
// or wrong is an error, never an empty secret.
package vault

import (
	"errors"
	"fmt"
	"log/slog"
)

// redacted is all that anybody sees of a secret who does not reveal it.
const redacted = "[secret]"

// errMarshal is the error of everything that would write a secret down.
var errMarshal = errors.New("a secret is not marshalled")

// Secret is the value of a credential. However it is printed, logged or marshalled, it
// does not show: only Reveal returns it, which package egress alone may call.
type Secret struct {
	// value is behind a pointer because fmt calls no method of a secret that is in an
	// unexported field, and prints what it finds: of a pointer, the address.
	value *string
}

// NewSecret returns the secret that has this value.
func NewSecret(value string) Secret { return Secret{&value} }

// Reveal returns the value.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether there is no value.
func (s Secret) IsZero() bool { return s.value == nil || *s.value == "" }

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// Format implements fmt.Formatter, so that no verb shows the value.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler, and so keeps secrets out of JSON, too.
func (Secret) MarshalText() ([]byte, error) { return nil, errMarshal }

// MarshalBinary implements encoding.BinaryMarshaler, and so keeps secrets out of gob.
func (Secret) MarshalBinary() ([]byte, error) { return nil, errMarshal }
