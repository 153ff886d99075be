package v1

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/dormouse-run/dormouse/catalog"
)

// usualVaults and mostVaults are how many vaults, or credentials, a page has.
const usualVaults, mostVaults = 20, 100

func (s *Server) vaultRoutes() {
	s.handle("/v1/vaults", methods{http.MethodGet: s.listVaults, http.MethodPost: s.createVault})
	s.handle("/v1/vaults/{id}", methods{http.MethodGet: s.getVault, http.MethodPost: s.updateVault, http.MethodDelete: s.deleteVault})
	s.handle("/v1/vaults/{id}/archive", methods{http.MethodPost: s.archiveVault})
	s.handle("/v1/vaults/{id}/credentials", methods{http.MethodGet: s.listCredentials, http.MethodPost: s.createCredential})
	s.handle("/v1/vaults/{id}/credentials/{credential}", methods{
		http.MethodGet: s.getCredential, http.MethodPost: s.updateCredential, http.MethodDelete: s.deleteCredential,
	})
	s.handle("/v1/vaults/{id}/credentials/{credential}/archive", methods{http.MethodPost: s.archiveCredential})
}

func (s *Server) createVault(c call) error {
	var p catalog.VaultParams
	if err := c.decode(&p); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.CreateVault(ctx, c.Who.Tenant, p))
}

func (s *Server) getVault(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.Vault(ctx, c.Who.Tenant, c.R.PathValue("id")))
}

func (s *Server) updateVault(c call) error {
	var u catalog.VaultUpdate
	if err := c.decode(&u); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.UpdateVault(ctx, c.Who.Tenant, c.R.PathValue("id"), u))
}

func (s *Server) archiveVault(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.ArchiveVault(ctx, c.Who.Tenant, c.R.PathValue("id")))
}

func (s *Server) deleteVault(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	id := c.R.PathValue("id")
	if err := s.Catalog.DeleteVault(ctx, c.Who.Tenant, id); err != nil {
		return err
	}
	return c.Answer(http.StatusOK, deleted{id, "vault_deleted"})
}

func (s *Server) listVaults(c call) error {
	q := c.query()
	want := catalog.Query{Tenant: c.Who.Tenant, Limit: q.limit(usualVaults, mostVaults), Archived: q.flag("include_archived")}
	l := newList("vaults", want.Tenant, strconv.FormatBool(want.Archived))
	return listOf(c, l, q, want, s.Catalog.Vaults, func(v catalog.Vault) (string, time.Time) { return v.ID, v.Created })
}

func (s *Server) createCredential(c call) error {
	var p catalog.CredentialParams
	if err := c.decode(&p); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.CreateCredential(ctx, c.Who.Tenant, c.R.PathValue("id"), p))
}

func (s *Server) getCredential(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.Credential(ctx, c.Who.Tenant, c.R.PathValue("id"), c.R.PathValue("credential")))
}

func (s *Server) updateCredential(c call) error {
	var u catalog.CredentialUpdate
	if err := c.decode(&u); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.UpdateCredential(ctx, c.Who.Tenant, c.R.PathValue("id"), c.R.PathValue("credential"), u))
}

func (s *Server) archiveCredential(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	return c.AnswerWith(s.Catalog.ArchiveCredential(ctx, c.Who.Tenant, c.R.PathValue("id"), c.R.PathValue("credential")))
}

func (s *Server) deleteCredential(c call) error {
	ctx, cancel := c.Context()
	defer cancel()
	id := c.R.PathValue("credential")
	if err := s.Catalog.DeleteCredential(ctx, c.Who.Tenant, c.R.PathValue("id"), id); err != nil {
		return err
	}
	return c.Answer(http.StatusOK, deleted{id, "vault_credential_deleted"})
}

func (s *Server) listCredentials(c call) error {
	q, vault := c.query(), c.R.PathValue("id")
	want := catalog.Query{Tenant: c.Who.Tenant, Limit: q.limit(usualVaults, mostVaults), Archived: q.flag("include_archived")}
	l := newList("credentials", want.Tenant, vault, strconv.FormatBool(want.Archived))
	find := func(ctx context.Context, want catalog.Query) ([]catalog.Credential, error) {
		return s.Catalog.Credentials(ctx, vault, want)
	}
	return listOf(c, l, q, want, find, func(k catalog.Credential) (string, time.Time) { return k.ID, k.Created })
}
