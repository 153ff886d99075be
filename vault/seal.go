package vault

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// ErrBroken means that a sealed value does not open although its key is there: it was
// changed, or moved here from another place.
var ErrBroken = errors.New("a sealed value does not open")

// sealed is a value as it is stored: sealed1.KEY.DATA, where the data is the nonce and
// what AES-256-GCM makes of the value, in base64 for URLs.
type sealed struct {
	key  string
	data []byte
}

const (
	sealedPrefix = "sealed1"
	nonceSize    = 12
	tagSize      = 16
	// maxSealed bounds a sealed value, which is far more than any secret may have.
	maxSealed = 64 << 10
	maxKeyID  = 64
)

var encoding = base64.RawURLEncoding.Strict()

func (s sealed) String() string {
	return sealedPrefix + "." + s.key + "." + encoding.EncodeToString(s.data)
}

// parse reads a sealed value. Each has one spelling.
func parse(text string) (sealed, error) {
	parts := strings.Split(text, ".")
	if len(text) > maxSealed || len(parts) != 3 || parts[0] != sealedPrefix || len(parts[1]) > maxKeyID || !strings.HasPrefix(parts[1], KeyPrefix) {
		return sealed{}, fmt.Errorf("what is stored is no sealed value: %w", ErrBroken)
	}
	data, err := encoding.DecodeString(parts[2])
	if err != nil || len(data) < nonceSize+tagSize || strings.ContainsAny(parts[2], "\r\n") {
		return sealed{}, fmt.Errorf("what is stored is no sealed value: %w", ErrBroken)
	}
	return sealed{parts[1], data}, nil
}

// KeyOf names the key that a sealed value was sealed under.
func KeyOf(text string) (string, error) {
	s, err := parse(text)
	return s.key, err
}

// associated encodes a place for the tag of a sealed value. Every part has its length
// in front, so that no two places are encoded alike.
func associated(key string, at dormouse.SecretPlace) []byte {
	var b []byte
	for _, part := range []string{sealedPrefix, key, at.Tenant, at.Vault, at.Credential, at.Field, strconv.Itoa(at.Version)} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

func (k Key) seal(at dormouse.SecretPlace, value string) string {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce)
	return sealed{k.id, k.aead.Seal(nonce, nonce, []byte(value), associated(k.id, at))}.String()
}

func (k Key) open(at dormouse.SecretPlace, s sealed) (string, error) {
	value, err := k.aead.Open(nil, s.data[:nonceSize], s.data[nonceSize:], associated(k.id, at))
	if err != nil {
		return "", fmt.Errorf("%s of credential %s: %w", at.Field, at.Credential, ErrBroken)
	}
	return string(value), nil
}

// Vault seals secrets and opens them.
type Vault struct{ Ring }

// New returns the vault whose keys these are.
func New(keys Ring) *Vault { return &Vault{keys} }

// String says where the keys are.
func (v *Vault) String() string { return fmt.Sprint(v.Ring) }

// Seal seals a value for a place under a key, or under the newest if none is named.
func (v *Vault) Seal(ctx context.Context, key string, at dormouse.SecretPlace, value string) (string, error) {
	k, err := v.key(ctx, key)
	if err != nil {
		return "", err
	}
	return k.seal(at, value), nil
}

func (v *Vault) key(ctx context.Context, id string) (Key, error) {
	if id == "" {
		return v.Newest(ctx)
	}
	return v.Key(ctx, id)
}

// Open opens what was sealed for a place.
func (v *Vault) Open(ctx context.Context, at dormouse.SecretPlace, text string) (Secret, error) {
	value, err := v.open(ctx, at, text)
	if err != nil {
		return Secret{}, err
	}
	return NewSecret(value), nil
}

// Reseal seals for another place or under another key what was sealed already, so that
// who moves a secret does not see it.
func (v *Vault) Reseal(ctx context.Context, key string, from, to dormouse.SecretPlace, text string) (string, error) {
	value, err := v.open(ctx, from, text)
	if err != nil {
		return "", err
	}
	return v.Seal(ctx, key, to, value)
}

// KeyOf names the key that a sealed value was sealed under.
func (v *Vault) KeyOf(text string) (string, error) { return KeyOf(text) }

func (v *Vault) open(ctx context.Context, at dormouse.SecretPlace, text string) (string, error) {
	s, err := parse(text)
	if err != nil {
		return "", fmt.Errorf("%s of credential %s: %w", at.Field, at.Credential, err)
	}
	k, err := v.Key(ctx, s.key)
	if err != nil {
		return "", err
	}
	return k.open(at, s)
}
