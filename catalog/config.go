package catalog

import (
	"cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// ConfigParams is the config of an environment as it is asked for.
type ConfigParams struct {
	Type       string                                `json:"type"`
	Networking closedjson.Optional[networkingParams] `json:"networking"`
	Packages   closedjson.Optional[packagesParams]   `json:"packages"`
}

type (
	networkingParams struct {
		Type                 string                        `json:"type"`
		AllowMCPServers      closedjson.Optional[bool]     `json:"allow_mcp_servers"`
		AllowPackageManagers closedjson.Optional[bool]     `json:"allow_package_managers"`
		AllowedHosts         closedjson.Optional[[]string] `json:"allowed_hosts"`
	}
	packagesParams struct {
		Type  closedjson.Omittable[string]  `json:"type"`
		Apt   closedjson.Optional[[]string] `json:"apt"`
		Cargo closedjson.Optional[[]string] `json:"cargo"`
		Gem   closedjson.Optional[[]string] `json:"gem"`
		Go    closedjson.Optional[[]string] `json:"go"`
		Npm   closedjson.Optional[[]string] `json:"npm"`
		Pip   closedjson.Optional[[]string] `json:"pip"`
	}
)

// DecodeJSON implements closedjson.Decoder.
func (p *ConfigParams) DecodeJSON(raw []byte) error {
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch kind {
	case typeCloud:
		type object ConfigParams
		return closedjson.Bind(raw, (*object)(p))
	case typeSelfHosted:
		p.Type = kind
		return closedjson.Bind(raw, new(Typed))
	}
	return closedjson.In("type", closedjson.Errorf("must be %s or %s, not %q", typeCloud, typeSelfHosted, short(kind)))
}

// DecodeJSON implements closedjson.Decoder.
func (p *networkingParams) DecodeJSON(raw []byte) error {
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch kind {
	case typeUnrestricted:
		p.Type = kind
		return closedjson.Bind(raw, new(Typed))
	case typeLimited:
		type object networkingParams
		return closedjson.Bind(raw, (*object)(p))
	}
	return closedjson.In("type", closedjson.Errorf("must be %s or %s, not %q", typeUnrestricted, typeLimited, short(kind)))
}

// resolve returns the config that is asked for. What it leaves out stays as it was, or
// gets the default if there was no config before.
func (p *ConfigParams) resolve(was Config) (Config, error) {
	kind := cmp.Or(p.Type, was.Type, typeCloud)
	if was.Type != "" && was.Type != kind {
		return was, &problem{kind: dormouse.ErrInvalid, code: codeTypeChange, message: "config.type: is " + was.Type + " and cannot become " + kind}
	}
	if kind == typeSelfHosted {
		return Config{Type: typeSelfHosted}, nil
	}
	c := Config{Type: typeCloud, Networking: was.Networking, Packages: was.Packages}
	if p.Networking.Given() {
		c.Networking = p.Networking.Value.resolve(was.Networking)
	}
	if c.Networking == nil {
		c.Networking = &Networking{Type: typeUnrestricted}
	}
	if p.Packages.Set && p.Packages.Value.Type.Or(typePackages) != typePackages {
		return c, invalidf("config.packages.type", "must be %s", typePackages)
	}
	if p.Packages.Given() || c.Packages == nil {
		c.Packages = p.Packages.Value.resolve()
	}
	return c, c.check()
}

func (p *networkingParams) resolve(was *Networking) *Networking {
	if p.Type == typeUnrestricted {
		return &Networking{Type: typeUnrestricted}
	}
	l := Limits{AllowedHosts: []string{}}
	if was != nil && was.Limits != nil {
		l = *was.Limits
	}
	l.AllowMCPServers = p.AllowMCPServers.Or(l.AllowMCPServers)
	l.AllowPackageManagers = p.AllowPackageManagers.Or(l.AllowPackageManagers)
	l.AllowedHosts = p.AllowedHosts.Or(l.AllowedHosts)
	return &Networking{typeLimited, &l}
}

func (p packagesParams) resolve() *Packages {
	all := func(o closedjson.Optional[[]string]) []string { return append([]string{}, o.Value...) }
	return &Packages{typePackages, all(p.Apt), all(p.Cargo), all(p.Gem), all(p.Go), all(p.Npm), all(p.Pip)}
}

// check refuses what no sandbox could be made of.
func (c Config) check() error {
	s := Environment{Config: c}.Sandbox()
	for i, h := range s.Hosts {
		if _, err := dormouse.ParseHost(h); err != nil {
			return invalidf(at("config.networking.allowed_hosts", i), "%s", err)
		}
	}
	if s.Network == dormouse.NetworkLimited && !s.PackageManagers && !s.Packages.IsZero() {
		return invalidf("config.packages", "need networking.allow_package_managers where the network is limited")
	}
	if err := s.Validate(); err != nil {
		return invalidf("config", "%s", err)
	}
	return nil
}
