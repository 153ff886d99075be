package catalog

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// The built-in tools.
const (
	toolWebFetch  = "web_fetch"
	toolWebSearch = "web_search"
)

var builtin = []string{"bash", "read", "write", "edit", "glob", "grep", toolWebFetch, toolWebSearch}

// ToolSetting is the setting of one built-in tool. The fields after it are those
// of web tools alone.
type ToolSetting struct {
	Type string `json:"type"`
	Name string `json:"name"`
	Setting
	AllowedDomains   []string        `json:"allowed_domains,omitempty"`
	BlockedDomains   []string        `json:"blocked_domains,omitempty"`
	MaxContentTokens *int            `json:"max_content_tokens,omitempty"`
	URLSources       json.RawMessage `json:"url_sources,omitempty"` // null if web_fetch was told none
	UserLocation     *Location       `json:"user_location,omitempty"`
}

// Location is about where the user of a search is.
type Location struct {
	Type     string  `json:"type"`
	City     *string `json:"city"`
	Region   *string `json:"region"`
	Country  *string `json:"country"`
	Timezone *string `json:"timezone"`
}

type toolSettingParams struct {
	Type closedjson.Omittable[string] `json:"type"`
	Name string                       `json:"name"`
	settingParams
	AllowedDomains   closedjson.Omittable[[]string]        `json:"allowed_domains"`
	BlockedDomains   closedjson.Omittable[[]string]        `json:"blocked_domains"`
	MaxContentTokens closedjson.Optional[int32]            `json:"max_content_tokens"`
	URLSources       closedjson.Optional[urlSourcesParams] `json:"url_sources"`
	UserLocation     closedjson.Optional[locationParams]   `json:"user_location"`
}

type locationParams struct {
	Type     string                      `json:"type"`
	City     closedjson.Optional[string] `json:"city"`
	Region   closedjson.Optional[string] `json:"region"`
	Country  closedjson.Optional[string] `json:"country"`
	Timezone closedjson.Optional[string] `json:"timezone"`
}

func (p *toolsetParams) resolve(path string) (*Toolset, error) {
	def, err := p.Default.Value.resolve(path+".default_config", Setting{true, Typed{policyAllow}})
	if err != nil {
		return nil, err
	}
	t := &Toolset{Type: typeToolset, Default: def, Configs: []ToolSetting{}}
	for i, c := range p.Configs.Value {
		at := at(path+".configs", i)
		if slices.ContainsFunc(t.Configs, func(s ToolSetting) bool { return s.Name == c.Name }) {
			return nil, invalidf(at+".name", "%s is configured twice", c.Name)
		}
		s, err := c.resolve(at, def)
		if err != nil {
			return nil, err
		}
		t.Configs = append(t.Configs, s)
	}
	return t, nil
}

func (p toolSettingParams) resolve(path string, def Setting) (ToolSetting, error) {
	s := ToolSetting{Type: p.Name, Name: p.Name}
	if !slices.Contains(builtin, p.Name) {
		return s, invalidf(path+".name", "must be one of %s, not %q", strings.Join(builtin, ", "), short(p.Name))
	}
	if p.Type.Set && p.Type.Value != p.Name {
		return s, invalidf(path+".type", "must be the name, which is %s", p.Name)
	}
	var err error
	if s.Setting, err = p.settingParams.resolve(path, def); err != nil {
		return s, err
	}
	fetches := p.Name == toolWebFetch
	searches := p.Name == toolWebSearch
	for _, f := range []struct {
		name     string
		set, may bool
	}{
		{"allowed_domains", p.AllowedDomains.Set, fetches || searches},
		{"blocked_domains", p.BlockedDomains.Set, fetches || searches},
		{"max_content_tokens", p.MaxContentTokens.Set, fetches},
		{"url_sources", p.URLSources.Set, fetches},
		{"user_location", p.UserLocation.Set, searches},
	} {
		if f.set && !f.may {
			return s, invalidf(path+"."+f.name, "there is no such field of %s", p.Name)
		}
	}
	if err := p.resolveDomains(path, &s); err != nil {
		return s, err
	}
	if fetches {
		return s, p.resolveFetch(path, &s)
	}
	if p.UserLocation.Given() {
		s.UserLocation, err = p.UserLocation.Value.resolve(path + ".user_location")
	}
	return s, err
}

func (p toolSettingParams) resolveDomains(path string, s *ToolSetting) error {
	if p.AllowedDomains.Set && p.BlockedDomains.Set {
		return invalidf(path, "allowed_domains and blocked_domains cannot be combined")
	}
	for _, f := range []struct {
		path string
		from closedjson.Omittable[[]string]
		to   *[]string
	}{{path + ".allowed_domains", p.AllowedDomains, &s.AllowedDomains}, {path + ".blocked_domains", p.BlockedDomains, &s.BlockedDomains}} {
		if !f.from.Set {
			continue
		}
		const most = 64
		if n := len(f.from.Value); n < 1 || n > most {
			return invalidf(f.path, "has %d entries; it must have 1 to %d, or be left out", n, most)
		}
		for i, d := range f.from.Value {
			host, suffix, _ := strings.Cut(d, "/")
			if !hostname.MatchString(host) || len(d) > 255 || suffix != "" && s.Name == toolWebFetch {
				return invalidf(at(f.path, i), "%q is not a host such as docs.example.com", short(d))
			}
		}
		*f.to = f.from.Value
	}
	return nil
}

var (
	hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+$`)
	country  = regexp.MustCompile(`^[A-Z]{2}$`)
)

func (p toolSettingParams) resolveFetch(path string, s *ToolSetting) error {
	if p.MaxContentTokens.Given() {
		n := int(p.MaxContentTokens.Value)
		if n < 1 {
			return invalidf(path+".max_content_tokens", "must be at least 1")
		}
		s.MaxContentTokens = &n
	}
	s.URLSources = json.RawMessage("null")
	if p.URLSources.Given() {
		sources, err := p.URLSources.Value.resolve(path + ".url_sources")
		if err != nil {
			return err
		}
		s.URLSources = dormouse.Encode(sources)
	}
	return nil
}

func (p locationParams) resolve(path string) (*Location, error) {
	if p.Type != "approximate" {
		return nil, invalidf(path+".type", "must be approximate")
	}
	l := &Location{Type: p.Type}
	for _, f := range []struct {
		name string
		from closedjson.Optional[string]
		to   **string
	}{{"city", p.City, &l.City}, {"region", p.Region, &l.Region}, {"country", p.Country, &l.Country}, {"timezone", p.Timezone, &l.Timezone}} {
		if !f.from.Given() {
			continue
		}
		if err := checkLength(path+"."+f.name, f.from.Value, 1, 255); err != nil {
			return nil, err
		}
		if f.name == "country" && !country.MatchString(f.from.Value) {
			return nil, invalidf(path+".country", "must be two capital letters, not %q", short(f.from.Value))
		}
		*f.to = &f.from.Value
	}
	return l, nil
}
