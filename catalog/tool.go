package catalog

import (
	"encoding/json"
	"fmt"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/closedjson"
)

// Tool is one entry of an agent's tools: exactly one of its fields is set.
type Tool struct {
	Toolset *Toolset
	MCP     *MCPToolset
	Custom  *CustomTool
}

// The types of tools.
const (
	typeToolset = "agent_toolset_20260401"
	typeMCP     = "mcp_toolset"
	typeCustom  = "custom"
)

// Toolset is the built-in tools.
type Toolset struct {
	Type    string        `json:"type"`
	Default Setting       `json:"default_config"`
	Configs []ToolSetting `json:"configs"`
}

// Setting says whether a tool is on, and who decides on each call.
type Setting struct {
	Enabled bool  `json:"enabled"`
	Policy  Typed `json:"permission_policy"`
}

// MCPToolset is the tools of an MCP server.
type MCPToolset struct {
	Type    string       `json:"type"`
	Server  string       `json:"mcp_server_name"`
	Default Setting      `json:"default_config"`
	Configs []MCPSetting `json:"configs"`
}

// MCPSetting is the setting of one tool of an MCP server.
type MCPSetting struct {
	Name string `json:"name"`
	Setting
}

// CustomTool is a tool that the client runs.
type CustomTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// MarshalJSON implements json.Marshaler.
func (t Tool) MarshalJSON() ([]byte, error) {
	switch {
	case t.Toolset != nil:
		return dormouse.Encode(t.Toolset), nil
	case t.MCP != nil:
		return dormouse.Encode(t.MCP), nil
	}
	return dormouse.Encode(t.Custom), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Tool) UnmarshalJSON(raw []byte) error {
	var of Typed
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	switch of.Type {
	case typeToolset:
		return json.Unmarshal(raw, &t.Toolset)
	case typeMCP:
		return json.Unmarshal(raw, &t.MCP)
	case typeCustom:
		return json.Unmarshal(raw, &t.Custom)
	}
	return fmt.Errorf("there is no tool of type %q", of.Type)
}

// ToolParams is a tool as it is asked for: exactly one of its fields is set.
type ToolParams struct {
	toolset *toolsetParams
	mcp     *mcpToolsetParams
	custom  *CustomTool
}

type (
	settingParams struct {
		Enabled closedjson.Optional[bool]  `json:"enabled"`
		Policy  closedjson.Optional[Typed] `json:"permission_policy"`
	}
	toolsetParams struct {
		Type    string                                    `json:"type"`
		Default closedjson.Optional[settingParams]        `json:"default_config"`
		Configs closedjson.Omittable[[]toolSettingParams] `json:"configs"`
	}
	mcpToolsetParams struct {
		Type    string                                   `json:"type"`
		Server  string                                   `json:"mcp_server_name"`
		Default closedjson.Optional[settingParams]       `json:"default_config"`
		Configs closedjson.Omittable[[]mcpSettingParams] `json:"configs"`
	}
	mcpSettingParams struct {
		Name string `json:"name"`
		settingParams
	}
)

// DecodeJSON implements closedjson.Decoder.
func (t *ToolParams) DecodeJSON(raw []byte) error {
	kind, err := closedjson.Type(raw)
	if err != nil {
		return err
	}
	switch kind {
	case typeToolset:
		t.toolset = new(toolsetParams)
		return closedjson.Bind(raw, t.toolset)
	case typeMCP:
		t.mcp = new(mcpToolsetParams)
		return closedjson.Bind(raw, t.mcp)
	case typeCustom:
		t.custom = new(CustomTool)
		return closedjson.Bind(raw, t.custom)
	}
	return closedjson.In("type", closedjson.Errorf("must be %s, %s or %s, not %q", typeToolset, typeMCP, typeCustom, short(kind)))
}

// The policies: who decides whether a tool may be called.
const (
	policyAllow = "always_allow"
	policyAsk   = "always_ask"
	policyAuto  = "auto"
)

// permissions are the policies as a session has them.
var permissions = map[string]dormouse.Permission{
	policyAllow: dormouse.PermissionAllow,
	policyAsk:   dormouse.PermissionAsk,
	policyAuto:  dormouse.PermissionAuto,
}

// resolve fills what p leaves open with what other says.
func (p settingParams) resolve(path string, other Setting) (Setting, error) {
	s := Setting{Enabled: p.Enabled.Or(other.Enabled), Policy: p.Policy.Or(other.Policy)}
	if _, ok := permissions[s.Policy.Type]; !ok {
		return s, invalidf(path+".permission_policy.type", "must be %s, %s or %s, not %q", policyAllow, policyAsk, policyAuto, short(s.Policy.Type))
	}
	return s, nil
}
