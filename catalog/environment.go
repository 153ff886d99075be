package catalog

import (
	"fmt"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
	"github.com/dormouse-run/dormouse/store"
)

// Environment is what sandboxes are made of, as the API shows it.
type Environment struct {
	Type        string            `json:"type"`
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Description *string           `json:"description"`
	Config      Config            `json:"config"`
	Metadata    map[string]string `json:"metadata"`
	Scope       string            `json:"scope"`
	Created     time.Time         `json:"created_at"`
	Updated     time.Time         `json:"updated_at"`
	Archived    *time.Time        `json:"archived_at"`
}

// Config says where sandboxes are and what they may do. One that is self_hosted
// has nothing but its type.
type Config struct {
	Type       string      `json:"type"`
	Networking *Networking `json:"networking,omitempty"`
	Packages   *Packages   `json:"packages,omitempty"`
}

// Networking is where a sandbox may connect to. One that is unrestricted has
// nothing but its type.
type Networking struct {
	Type string `json:"type"`
	*Limits
}

// Limits is what a limited network leads to.
type Limits struct {
	AllowMCPServers      bool     `json:"allow_mcp_servers"`
	AllowPackageManagers bool     `json:"allow_package_managers"`
	AllowedHosts         []string `json:"allowed_hosts"`
}

// Packages is what is installed, by package manager.
type Packages struct {
	Type  string   `json:"type"`
	Apt   []string `json:"apt"`
	Cargo []string `json:"cargo"`
	Gem   []string `json:"gem"`
	Go    []string `json:"go"`
	Npm   []string `json:"npm"`
	Pip   []string `json:"pip"`
}

// The kinds of environments and of their networks.
const (
	typeCloud        = "cloud"
	typeSelfHosted   = "self_hosted"
	typeUnrestricted = "unrestricted"
	typeLimited      = "limited"
	typePackages     = "packages"

	scopeOrganization         = "organization"
	maxEnvironmentDescription = 1024
)

// The names that the API has for what is wrong with an environment.
const (
	codeArchived   = "environment_archived"
	codeTypeChange = "invalid_config_type_change"
)

// EnvironmentParams is an environment as it is asked for.
type EnvironmentParams struct {
	Name        string                                  `json:"name"`
	Description closedjson.Optional[string]             `json:"description"`
	Config      closedjson.Optional[ConfigParams]       `json:"config"`
	Metadata    closedjson.Omittable[map[string]string] `json:"metadata"`
	Scope       closedjson.Optional[string]             `json:"scope"`
}

// EnvironmentUpdate is a partial update of an environment: fields that are left out stay
// as they are.
type EnvironmentUpdate struct {
	Name        closedjson.Optional[string]         `json:"name"`
	Description closedjson.Optional[string]         `json:"description"`
	Config      closedjson.Optional[ConfigParams]   `json:"config"`
	Metadata    closedjson.Omittable[MetadataPatch] `json:"metadata"`
	Scope       closedjson.Optional[string]         `json:"scope"`
}

// update returns what p asks for, as an update of an empty environment.
func (p EnvironmentParams) update() EnvironmentUpdate {
	patch := make(MetadataPatch, len(p.Metadata.Value))
	for k, v := range p.Metadata.Value {
		patch[k] = closedjson.Some(v)
	}
	return EnvironmentUpdate{
		Name: closedjson.Some(p.Name), Description: p.Description, Config: p.Config, Scope: p.Scope,
		Metadata: closedjson.Omittable[MetadataPatch]{Set: true, Value: patch},
	}
}

// with is the environment as a change leaves it.
func (e Environment) with(u EnvironmentUpdate, fresh bool) (_ Environment, err error) {
	e.Name = u.Name.Or(e.Name)
	if err := checkLength("name", e.Name, 1, maxName); err != nil {
		return e, err
	}
	switch {
	case u.Description.Null:
		e.Description = nil
	case u.Description.Set:
		if err := checkLength("description", u.Description.Value, 0, maxEnvironmentDescription); err != nil {
			return e, err
		}
		e.Description = &u.Description.Value
	}
	// A key that is there from the start may be empty; later, empty removes it.
	if e.Metadata, err = PatchMetadata(e.Metadata, u.Metadata.Value, !fresh); err != nil {
		return e, err
	}
	if scope := u.Scope.Or(scopeOrganization); scope != scopeOrganization {
		return e, invalidf("scope", "must be %s here, not %q", scopeOrganization, short(scope))
	}
	e.Config, err = u.Config.Value.resolve(e.Config)
	return e, err
}

// document is how an environment is kept.
func (e Environment) document(tenant string) store.Document {
	d := store.Document{
		Tenant: tenant, Kind: kindEnvironment, ID: e.ID, Name: e.Name, Version: 1, Created: e.Created, Updated: e.Updated, Body: dormouse.Encode(e),
	}
	if e.Archived != nil {
		d.Archived = *e.Archived
	}
	return d
}

func readEnvironment(d store.Document) (Environment, error) {
	e, err := read[Environment](d)
	e.Archived = timeOrNil(d.Archived)
	return e, err
}

// Unsupported names what the environment has that is not served yet.
func (e Environment) Unsupported() []string {
	if e.Config.Type == typeSelfHosted {
		return []string{typeSelfHosted}
	}
	return nil
}

// Sandbox is the environment as a session's sandboxes are made of it.
func (e Environment) Sandbox() dormouse.Environment {
	s := dormouse.Environment{Network: dormouse.NetworkOn}
	if n := e.Config.Networking; n != nil && n.Limits != nil {
		s.Network, s.Hosts, s.PackageManagers = dormouse.NetworkLimited, n.AllowedHosts, n.AllowPackageManagers
	}
	if p := e.Config.Packages; p != nil {
		s.Packages = dormouse.Packages{Apt: p.Apt, Cargo: p.Cargo, Gem: p.Gem, Go: p.Go, Npm: p.Npm, Pip: p.Pip}
	}
	return s
}

// usable refuses an environment of which no session is made.
func (e Environment) usable() error {
	if e.Archived != nil {
		return &problem{kind: dormouse.ErrInvalid, code: codeArchived, message: fmt.Sprintf("environment_id: %s is archived; sessions are made in environments that are not", e.ID)}
	}
	return nil
}
