package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// What an agent's tools may be.
const (
	maxTools    = 256
	maxToolName = 128
	maxServer   = 255
)

// resolveTools is the tools that are asked for, each whole.
func resolveTools(params []ToolParams) ([]Tool, error) {
	tools := make([]Tool, 0, len(params))
	names := make(map[string]bool) // of custom tools
	count := 0
	for i, p := range params {
		path := at("tools", i)
		var t Tool
		var err error
		switch {
		case p.toolset != nil:
			if slices.ContainsFunc(tools, func(t Tool) bool { return t.Toolset != nil }) {
				return nil, invalidf(path, "there are two %s", typeToolset)
			}
			t.Toolset, err = p.toolset.resolve(path)
			count += len(builtin)
		case p.mcp != nil:
			t.MCP, err = p.mcp.resolve(path)
			count += len(p.mcp.Configs.Value)
		default:
			t.Custom, err = p.custom.resolve(path)
			if err == nil && names[p.custom.Name] {
				err = invalidf(path+".name", "there are two tools called %s", p.custom.Name)
			}
			names[p.custom.Name] = true
			count++
		}
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	if count > maxTools {
		return nil, invalidf("tools", "are %d; at most %d are taken", count, maxTools)
	}
	return tools, checkReferences(params, names)
}

// checkReferences refuses a filter of URLs that names a tool that is not there.
func checkReferences(params []ToolParams, custom map[string]bool) error {
	for i, p := range params {
		if p.toolset == nil {
			continue
		}
		for j, c := range p.toolset.Configs.Value {
			for k, t := range c.URLSources.Value.Client.Value.Tools.Value {
				if !custom[t.Name] {
					path := fmt.Sprintf("tools[%d].configs[%d].url_sources.client_tool_results.tools[%d].name", i, j, k)
					return invalidf(path, "there is no custom tool %q", short(t.Name))
				}
			}
		}
	}
	return nil
}

func (p *mcpToolsetParams) resolve(path string) (*MCPToolset, error) {
	if err := checkLength(path+".mcp_server_name", p.Server, 1, maxServer); err != nil {
		return nil, err
	}
	def, err := p.Default.Value.resolve(path+".default_config", Setting{true, Typed{policyAsk}})
	if err != nil {
		return nil, err
	}
	t := &MCPToolset{Type: typeMCP, Server: p.Server, Default: def, Configs: []MCPSetting{}}
	seen := make(map[string]bool)
	for i, c := range p.Configs.Value {
		at := at(path+".configs", i)
		if err := checkLength(at+".name", c.Name, 1, maxToolName); err != nil {
			return nil, err
		}
		if seen[c.Name] {
			return nil, invalidf(at+".name", "%s is configured twice", short(c.Name))
		}
		seen[c.Name] = true
		s, err := c.resolve(at, def)
		if err != nil {
			return nil, err
		}
		t.Configs = append(t.Configs, MCPSetting{c.Name, s})
	}
	return t, nil
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// reservedPrefix begins the names that tools of MCP servers have.
const reservedPrefix = "mcp__"

func (p *CustomTool) resolve(path string) (*CustomTool, error) {
	switch {
	case !toolName.MatchString(p.Name):
		return nil, invalidf(path+".name", "%q must be 1 to %d letters, digits, _ or -", short(p.Name), maxToolName)
	case slices.Contains(builtin, p.Name):
		return nil, invalidf(path+".name", "%s is a built-in tool", p.Name)
	case strings.HasPrefix(p.Name, reservedPrefix):
		return nil, invalidf(path+".name", "names that begin with %s are those of MCP tools", reservedPrefix)
	case p.Description == "":
		return nil, invalidf(path+".description", "is empty")
	case len(p.Description) > dormouse.MaxSchema:
		return nil, invalidf(path+".description", "is over %d bytes", dormouse.MaxSchema)
	}
	schema, err := checkSchema(path+".input_schema", p.InputSchema)
	if err != nil {
		return nil, err
	}
	return &CustomTool{Type: typeCustom, Name: p.Name, Description: p.Description, InputSchema: schema}, nil
}

// checkSchema refuses what is not the schema of a tool's input, and returns it
// without the space in it.
func checkSchema(path string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > dormouse.MaxSchema {
		return nil, invalidf(path, "is over %d bytes", dormouse.MaxSchema)
	}
	if raw[0] != '{' {
		return nil, invalidf(path, "must be an object, not %s", closedjson.Kind(raw))
	}
	var top map[string]json.RawMessage
	if err := closedjson.Bind(raw, &top); err != nil {
		return nil, invalidf(path, "%s", err)
	}
	if string(top["type"]) != `"object"` {
		return nil, invalidf(path+".type", "must be object")
	}
	for _, name := range []string{"oneOf", "anyOf", "allOf"} {
		if top[name] != nil {
			return nil, invalidf(path+"."+name, "is not taken at the top")
		}
	}
	known := struct {
		Properties closedjson.Optional[map[string]json.RawMessage]
		Required   closedjson.Optional[[]string]
	}{}
	for name, into := range map[string]closedjson.Decoder{"properties": &known.Properties, "required": &known.Required} {
		if top[name] == nil {
			continue
		}
		if err := into.DecodeJSON(top[name]); err != nil {
			return nil, invalidf(path+"."+name, "%s", err)
		}
	}
	if refers(raw) {
		return nil, invalidf(path, "$ref is not taken")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b.Bytes(), nil
}

// refers reports whether a schema says $ref anywhere.
func refers(raw json.RawMessage) bool {
	var v any
	return json.Unmarshal(raw, &v) == nil && refersIn(v)
}

func refersIn(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["$ref"].(string); ok {
			return true
		}
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), refersIn)
	case []any:
		return slices.ContainsFunc(v, refersIn)
	}
	return false
}
