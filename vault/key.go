package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"

	"github.com/dormouse-run/dormouse"
)

// Keys is where the keys are that seal secrets. Several may be there at once: the
// newest seals, and each opens what was sealed under it. One that is kept by a key
// management service is unwrapped there when it is asked for.
type Keys interface {
	// Newest must return the key that was added last, or dormouse.ErrNoVaultKey if
	// there is none.
	Newest(ctx context.Context) (Key, error)

	// Key must return the key that an id names, also if somebody else added it a
	// moment ago, or dormouse.ErrNoVaultKey.
	Key(ctx context.Context, id string) (Key, error)
}

// Ring is implemented by Keys that can be exchanged.
type Ring interface {
	Keys

	// List must list the keys, the oldest first.
	List(ctx context.Context) ([]dormouse.VaultKey, error)

	// Add must make a key and keep it, durably, as the newest.
	Add(ctx context.Context) (dormouse.VaultKey, error)

	// Remove must forget a key, durably. One that is not there is removed already.
	Remove(ctx context.Context, id string) error
}

// KeyPrefix begins the ids of keys.
const KeyPrefix = "vkey_"

// keySize is that of AES-256.
const keySize = 32

// Key is a key that seals secrets. However it is printed, only its id shows.
type Key struct {
	id   string
	aead cipher.AEAD
}

// NewKey returns the key that has these bytes. Its id is derived from them, so that no
// other key passes for it.
func NewKey(bits [keySize]byte) Key {
	block, err := aes.NewCipher(bits[:])
	if err != nil {
		panic("vault: a key of 32 bytes is none of AES: " + err.Error())
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("vault: AES has no GCM: " + err.Error())
	}
	mac := hmac.New(sha256.New, bits[:])
	_, _ = mac.Write([]byte("dormouse vault key id"))
	return Key{dormouse.FormatID(KeyPrefix, [16]byte(mac.Sum(nil))), aead}
}

func randomKey() (bits [keySize]byte) {
	_, _ = rand.Read(bits[:]) // never fails: it ends the process instead
	return bits
}

// ID names the key.
func (k Key) ID() string { return k.id }

// String implements fmt.Stringer.
func (k Key) String() string { return k.id }

// Format implements fmt.Formatter, so that no verb shows more than the id.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.id)) }

// LogValue implements slog.LogValuer.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.id) }

// missing is the error of a key that cannot be had.
func missing(why error) error { return &missingError{why} }

type missingError struct{ why error }

func (e *missingError) Error() string   { return e.why.Error() }
func (e *missingError) Unwrap() []error { return []error{e.why, dormouse.ErrNoVaultKey} }
