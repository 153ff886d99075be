package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"unicode/utf8"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// Sealer seals the secrets of credentials, and keeps the keys that it does so with. The
// catalog hands it secrets and never gets one back.
type Sealer interface {
	// Seal seals a value for a place under a key.
	Seal(ctx context.Context, key string, at dormouse.SecretPlace, value string) (string, error)
	// Reseal seals for another place, or under another key, what was sealed already.
	Reseal(ctx context.Context, key string, from, to dormouse.SecretPlace, sealed string) (string, error)
	// KeyOf names the key that a value was sealed under.
	KeyOf(sealed string) (string, error)
	// List lists the keys, the oldest first.
	List(ctx context.Context) ([]dormouse.VaultKey, error)
	// Add makes a key.
	Add(ctx context.Context) (dormouse.VaultKey, error)
	// Remove forgets a key.
	Remove(ctx context.Context, id string) error
}

// secretText is a secret on its way from a request to the Sealer. However it is printed,
// it does not show, and an error about it does not quote it.
type secretText struct{ value *string }

// text is for the Sealer, and to be measured.
func (s secretText) text() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// DecodeJSON implements closedjson.Decoder.
func (s *secretText) DecodeJSON(raw []byte) error {
	if raw[0] != '"' {
		return closedjson.Errorf("must be a string")
	}
	s.value = new(string)
	return closedjson.Bind(raw, s.value)
}

// Format implements fmt.Formatter, so that no verb shows the value.
func (secretText) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[secret]")) }

// LogValue implements slog.LogValuer.
func (secretText) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText implements encoding.TextMarshaler, and so keeps secrets out of JSON.
func (secretText) MarshalText() ([]byte, error) { return nil, fmt.Errorf("a secret is not marshalled") }

// The most characters that secrets have.
const (
	maxToken        = 8192
	maxClientSecret = 512
	maxSecretValue  = 4096
)

// check refuses a secret that is too short or too long, and with printable also one that
// has characters which no header can hold.
func (s secretText) check(path string, most int, printable bool) error {
	if n := utf8.RuneCountInString(s.text()); n < 1 || n > most {
		return invalidf(path, "has %d characters; it must have 1 to %d", n, most)
	}
	if !printable {
		return nil
	}
	for _, c := range s.text() {
		if c < ' ' || c == 0x7f {
			return invalidf(path, "has a control character, such as a line end")
		}
	}
	return nil
}
