package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/client"
	"github.com/dormouse-run/dormouse/door"
)

// VaultKeys are the keys that the secrets of all vaults are sealed under.
type VaultKeys interface {
	Keys(ctx context.Context) ([]catalog.KeyState, error)
	Rekey(ctx context.Context, forget bool) (catalog.Rekeyed, error)
}

// keysRefused says to an operator, for whom these routes are, which key is missing and
// where it was looked for.
func keysRefused(err error) error {
	if errors.Is(err, dormouse.ErrNoVaultKey) {
		return &door.Refusal{Status: http.StatusServiceUnavailable, Type: "no_vault_key", Message: err.Error()}
	}
	return err
}

func (s *Server) vaultKeys(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	if s.VaultKeys == nil {
		return keysRefused(errNoKeys)
	}
	all, err := s.VaultKeys.Keys(ctx)
	if err != nil {
		return keysRefused(err)
	}
	page := struct {
		Keys []client.VaultKey `json:"keys"`
	}{make([]client.VaultKey, 0, len(all))}
	for _, k := range all {
		page.Keys = append(page.Keys, client.VaultKey{ID: k.ID, Created: k.Created, Seals: k.Seals, Missing: k.Missing, Retired: k.Retired})
	}
	return c.Answer(http.StatusOK, page)
}

var errNoKeys = fmt.Errorf("this server keeps no secrets: %w", dormouse.ErrNoVaultKey)

type rekeyRequest struct {
	ForgetLost bool `json:"forget_lost"`
}

// rekey takes as long as it takes. If its client leaves it stops, and the next one goes on.
func (s *Server) rekey(c call) error {
	var r rekeyRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if s.VaultKeys == nil {
		return keysRefused(errNoKeys)
	}
	done, err := s.VaultKeys.Rekey(c.R.Context(), r.ForgetLost)
	if err != nil {
		return keysRefused(err)
	}
	return c.Answer(http.StatusOK, client.Rekeyed{Key: done.Key, Resealed: done.Resealed, Lost: done.Lost, Retired: done.Retired})
}
