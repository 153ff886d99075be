//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/catalog"
	"github.com/dormouse-run/dormouse/internal/crash"
	"github.com/dormouse-run/dormouse/internal/sleep"
	"github.com/dormouse-run/dormouse/vault"
)

// vaultKeysSuffix is what the usual file with the vault keys has after the name of the
// data directory. It is beside that and not in it: whoever gets a copy of the data alone
// gets no secret. Who keeps copies has to keep one of this file too, elsewhere.
const vaultKeysSuffix = ".vault-keys"

// vaultKeys are the keys that secrets are sealed under.
func (c config) vaultKeys() *vault.KeyFile {
	path := c.VaultKeys
	if path == "" {
		data, err := filepath.Abs(c.Data) // beside "." is not in it
		if err != nil {
			data = filepath.Clean(c.Data)
		}
		path = data + vaultKeysSuffix
	}
	return vault.NewKeyFile(path, nil)
}

// openVaults opens the catalog with the keys of its vaults. A server that lacks one starts
// all the same: what needs no secret works.
func (s *server) openVaults(ctx context.Context) error {
	s.catalog = catalog.New(s.store, vault.New(s.config.vaultKeys()), nil)
	err := s.catalog.OpenKeys(ctx)
	if errors.Is(err, dormouse.ErrNoVaultKey) {
		s.log.WarnContext(ctx, "a vault key is missing, so no secret is kept or used", "error", err)
		return nil
	}
	return err
}

// sweepVaultsEvery is how often vaults are looked for that a crash has left half archived
// or half deleted, and keys that were retired.
const sweepVaultsEvery = time.Hour

// sweepVaults finishes them, the first ones at the start.
func (s *server) sweepVaults(ctx context.Context) {
	for {
		n, err := s.catalog.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.WarnContext(ctx, "vaults not swept", "error", err)
		case n > 0:
			s.log.InfoContext(ctx, "vaults swept", "credentials", n)
		}
		if sleep.For(ctx, crash.Every("DORMOUSE_COLLECT_EVERY", sweepVaultsEvery)) != nil {
			return
		}
	}
}

// checkVaultKeys finds out whether the keys are there that the secrets of the database
// need, or, if a server has that for itself, whether the file can be read.
func checkVaultKeys(ctx context.Context, c config, up bool) (string, error) {
	file := c.vaultKeys()
	have, err := file.List(ctx)
	if err != nil {
		return "", err
	}
	if c.Store.value == "" && up {
		return fmt.Sprintf("%d in %s", len(have), file), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	at, newest, err := schemaOf(ctx, c.Data, c.Store)
	if err != nil || at < newest { // what is wrong with the database is said elsewhere
		return fmt.Sprintf("%d in %s", len(have), file), nil //nolint:nilerr // see above
	}
	s, err := openStore(ctx, c.Data, c.Store, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	needed, err := catalog.New(s, vault.New(file), nil).CheckKeys(ctx)
	if err = errors.Join(err, s.Close()); err != nil {
		return "", err
	}
	if needed == 0 && len(have) == 0 {
		return fmt.Sprintf("none yet; the first start makes one in %s", file), nil
	}
	return fmt.Sprintf("%d in %s, none is missing", len(have), file), nil
}
