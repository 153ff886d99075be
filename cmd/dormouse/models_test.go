package main

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/anthropic"
	"github.com/dormouse-run/dormouse/model/modeltest"
	"github.com/dormouse-run/dormouse/model/scripted"
)

func TestAKeyAndNothingElseOpensItsModels(t *testing.T) {
	provider := httptest.NewServer(scripted.NewServer(scripted.Options{}))
	defer provider.Close()
	t.Setenv("ANTHROPIC_API_KEY", "")
	none, err := newModels(config{})
	if err != nil || none.usual() != "offline" {
		t.Errorf("without a key: %q, %v", none.usual(), err)
	}
	if _, err := none.Model("claude-opus-5"); !errors.Is(err, dormouse.ErrInvalid) || !strings.Contains(err.Error(), "ANTHROPIC_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("sk-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]config{"a file": {AnthropicKey: file}, "the environment": {}} {
		if c.AnthropicKey == "" {
			t.Setenv("ANTHROPIC_API_KEY", "sk-test")
		}
		c.AnthropicURL = provider.URL
		m, err := newModels(c)
		if err != nil || m.usual() != anthropic.Default {
			t.Fatalf("%s: %q, %v", name, m.usual(), err)
		}
		for _, name := range []string{anthropic.Default, "claude-that-comes-next-year"} {
			found, err := m.Model(name)
			if err != nil {
				t.Fatal(err)
			}
			reply, err := found.Reply(t.Context(), model.Request{Model: name, Messages: modeltest.User(`SCRIPT[{"text":"here"}]`)}, func(model.Delta) error { return nil })
			if err != nil || len(reply.Content) != 1 || reply.Content[0].Text != "here" {
				t.Errorf("%s: %+v, %v", name, reply, err)
			}
		}
		if _, err := m.Model("gpt"); !errors.Is(err, dormouse.ErrInvalid) || !strings.Contains(err.Error(), "claude-…") {
			t.Errorf("a model that is not there: %v", err)
		}
	}
}

func TestAFileWithoutAKeyIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": " \n", "two": "a\nb", "long": strings.Repeat("x", 5000)} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newModels(config{AnthropicKey: file}); err == nil || strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newModels(config{AnthropicKey: filepath.Join(dir, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
