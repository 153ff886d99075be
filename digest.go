package dormouse

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Digest names bytes by their content: "sha256:" and 64 hex digits.
type Digest string

// DigestOf names b.
func DigestOf(b []byte) Digest { return DigestOfSum(sha256.Sum256(b)) }

// DigestOfSum names bytes whose SHA-256 is known.
func DigestOfSum(sum [sha256.Size]byte) Digest {
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// Validate refuses what cannot be a digest.
func (d Digest) Validate() error {
	rest, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(rest) != 64 || strings.Trim(rest, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is not a sha256 digest: %w", truncate(string(d), 80), ErrInvalid)
	}
	return nil
}
