package tool_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
)

var update = flag.Bool("update", false, "rewrite testdata/schemas.json")

// A model is sent the same properties, whatever the schemas are made from.
func TestSchemasAreThoseThatModelsKnow(t *testing.T) {
	const golden = "testdata/schemas.json"
	tools := tool.Builtin()
	var all dormouse.AgentConfig
	for _, name := range tools.Names() {
		all.Tools = append(all.Tools, dormouse.ToolConfig{Name: name, Permission: dormouse.PermissionAllow})
	}
	got := make(map[string]any)
	for _, s := range tools.Specs(all) {
		var schema any
		if err := json.Unmarshal(s.InputSchema, &schema); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		got[s.Name] = map[string]any{"description": s.Description, "input_schema": schema}
	}
	if len(got) != len(tools.Names()) {
		t.Fatalf("%d of %d tools are sent", len(got), len(tools.Names()))
	}
	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, append(b, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]any)
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schemas changed (-want +got):\n%s", diff)
	}
}
