package catalog

import (
	"slices"

	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// urlSources says which URLs web_fetch may fetch, by where they were seen.
type urlSources struct {
	UserInput *urlSource `json:"user_input"`
	Client    *urlSource `json:"client_tool_results"`
	Server    *urlSource `json:"server_tool_results"`
}

// urlSource is all, none, or only those or all except those of some tools.
type urlSource struct {
	Type  string          `json:"type"`
	Tools []toolReference `json:"tools,omitempty"`
}

type toolReference struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type (
	urlSourcesParams struct {
		UserInput closedjson.Optional[urlSourceParams] `json:"user_input"`
		Client    closedjson.Optional[urlSourceParams] `json:"client_tool_results"`
		Server    closedjson.Optional[urlSourceParams] `json:"server_tool_results"`
	}
	urlSourceParams struct {
		Type  string                               `json:"type"`
		Tools closedjson.Optional[[]toolReference] `json:"tools"`
	}
)

// DecodeJSON implements closedjson.Decoder.
func (p *urlSourceParams) DecodeJSON(raw []byte) error {
	if raw[0] == '"' {
		return closedjson.Bind(raw, &p.Type)
	}
	type object urlSourceParams
	return closedjson.Bind(raw, (*object)(p))
}

func (p urlSourcesParams) resolve(path string) (urlSources, error) {
	var s urlSources
	none := 0
	for _, f := range []struct {
		name string
		from closedjson.Optional[urlSourceParams]
		to   **urlSource
	}{{"user_input", p.UserInput, &s.UserInput}, {"client_tool_results", p.Client, &s.Client}, {"server_tool_results", p.Server, &s.Server}} {
		if !f.from.Given() {
			continue
		}
		source, err := f.from.Value.resolve(path+"."+f.name, f.name != "user_input")
		if err != nil {
			return s, err
		}
		if source.Type == "none" {
			none++
		}
		*f.to = source
	}
	if none == 3 {
		return s, invalidf(path, "leaves nothing to fetch")
	}
	for i, t := range s.serverTools() {
		if t.Name != toolWebFetch && t.Name != toolWebSearch {
			return s, invalidf(at(path+".server_tool_results.tools", i)+".name", "must be %s or %s, not %q", toolWebSearch, toolWebFetch, short(t.Name))
		}
	}
	return s, nil
}

func (s urlSources) serverTools() []toolReference {
	if s.Server == nil {
		return nil
	}
	return s.Server.Tools
}

func (p *urlSourceParams) resolve(path string, lists bool) (*urlSource, error) {
	listed := p.Type == "only" || p.Type == "except"
	switch {
	case p.Type != "all" && p.Type != "none" && (!listed || !lists):
		return nil, invalidf(path, "%q is not what it can be", short(p.Type))
	case listed != p.Tools.Given():
		return nil, invalidf(path+".tools", "is for only and except, which need it")
	case listed && len(p.Tools.Value) == 0:
		return nil, invalidf(path+".tools", "is empty")
	}
	for i, t := range p.Tools.Value {
		if t.Type != "tool_reference" {
			return nil, invalidf(at(path+".tools", i)+".type", "must be tool_reference")
		}
		if err := checkLength(at(path+".tools", i)+".name", t.Name, 1, maxToolName); err != nil {
			return nil, err
		}
	}
	return &urlSource{p.Type, slices.Clone(p.Tools.Value)}, nil
}
