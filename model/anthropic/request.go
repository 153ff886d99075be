package anthropic

import (
	"encoding/json"
	"fmt"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"github.com/dormouse-run/dormouse/model"
)

// paramsOf converts a request for the SDK. What was said before is cached there: the next
// call of a turn begins with it.
func paramsOf(r model.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{
		Model: r.Model, MaxTokens: int64(r.MaxTokens), CacheControl: sdk.NewCacheControlEphemeralParam(),
	}
	if p.MaxTokens == 0 {
		p.MaxTokens = defaultMaxTokens
	}
	if r.Effort != "" {
		p.OutputConfig.Effort = sdk.OutputConfigEffort(r.Effort)
	}
	if r.System != "" {
		p.System = []sdk.TextBlockParam{{Text: r.System}}
	}
	for _, m := range r.Messages {
		raw, err := json.Marshal(m) // its form is that of the wire
		if err != nil {
			return p, fmt.Errorf("write the request: %w", err)
		}
		p.Messages = append(p.Messages, param.Override[sdk.MessageParam](json.RawMessage(raw)))
	}
	for _, t := range r.Tools {
		tool := sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](t.InputSchema)}
		if t.Description != "" {
			tool.Description = sdk.String(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	return p, nil
}
