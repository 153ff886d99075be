package dormouse

import "time"

// SecretPlace is where a secret is kept. A secret that was sealed for one place opens
// in no other, so that nobody who can write to the database can swap two of them or
// bring an old one back.
type SecretPlace struct {
	Tenant     string
	Vault      string
	Credential string
	// Field is which of the credential's secrets it is.
	Field string
	// Version is that of the credential, which rises whenever one of its secrets does.
	Version int
}

// VaultKey names a key that seals secrets; it is not the key.
type VaultKey struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created_at"`
}
