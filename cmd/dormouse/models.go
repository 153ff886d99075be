//go:build !windows

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	v1 "github.com/dormouse-run/dormouse/door/v1"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/anthropic"
	"github.com/dormouse-run/dormouse/model/offline"
	"github.com/dormouse-run/dormouse/model/scripted"
)

// models are those a server was given, by name, and what they cost.
type models struct {
	named  map[string]model.Model
	claude model.Model // answers for every name of its own; nil without a key
	prices map[string]model.Price
}

func newModels(c config) (models, error) {
	m := models{named: map[string]model.Model{"offline": offline.New()}}
	m.prices, _ = parsePrices(c.Prices) // checked with the rest of the configuration
	key, err := anthropicKey(c.AnthropicKey)
	if err != nil {
		return m, err
	}
	if key != "" {
		m.claude = anthropic.New(anthropic.Config{Key: key, BaseURL: c.AnthropicURL, HeaderTimeout: c.ModelTimeout, IdleTimeout: c.ModelTimeout})
	}
	if c.ScriptedURL != "" {
		wire := scripted.ClientConfig{BaseURL: c.ScriptedURL, HeaderTimeout: c.ModelTimeout, IdleTimeout: c.ModelTimeout}
		m.named["scripted"] = scripted.NewClient(wire)
		wire.Keyed = true
		m.named["scripted-keyed"] = scripted.NewClient(wire)
	}
	return m, nil
}

// anthropicKey is the key in a file, or in the environment.
func anthropicKey(file string) (string, error) {
	if file == "" {
		return strings.TrimSpace(os.Getenv("ANTHROPIC_API_KEY")), nil
	}
	const most = 4096
	raw, err := os.ReadFile(file)
	key := strings.TrimSpace(string(raw))
	switch {
	case err != nil:
		return "", fmt.Errorf("read --anthropic-key-file: %w", err)
	case key == "" || len(key) > most || strings.ContainsAny(key, "\n\r \t"):
		return "", usage("--anthropic-key-file %s holds no key", file)
	}
	return key, nil
}

// usual is the model of sessions that name none, unless --model is given.
func (m models) usual() string {
	if m.claude != nil {
		return anthropic.Default
	}
	return "offline"
}

// claudes begin the names of models that a key of Anthropic's opens.
const claudes = "claude-"

// Price implements agent.Priced. What has no price costs nothing.
func (m models) Price(name string) model.Price { return m.prices[name] }

// Model finds a model by its name.
func (m models) Model(name string) (model.Model, error) {
	if found, ok := m.named[name]; ok {
		return found, nil
	}
	is := strings.HasPrefix(name, claudes)
	if is && m.claude != nil {
		return m.claude, nil
	}
	if is {
		return nil, fmt.Errorf("model %q needs a key: start the server with ANTHROPIC_API_KEY or --anthropic-key-file: %w", name, dormouse.ErrInvalid)
	}
	return nil, fmt.Errorf("there is no model %q here; there is %s: %w", name, strings.Join(m.names(), ", "), dormouse.ErrInvalid)
}

// names are the models that can be named.
func (m models) names() []string {
	names := slices.Sorted(maps.Keys(m.named))
	if m.claude != nil {
		names = append(names, claudes+"…")
	}
	return names
}

// All implements v1.Models. Of the models that a key can use it lists those that were
// configured.
func (m models) All() []v1.Model {
	names := slices.Collect(maps.Keys(m.named))
	if m.claude != nil {
		names = append(names, anthropic.Default)
	}
	for name := range m.prices {
		if _, err := m.Model(name); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	all := make([]v1.Model, 0, len(names))
	for _, name := range slices.Compact(names) {
		all = append(all, v1.Model{ID: name, Name: name})
	}
	return all
}

// Find implements v1.Models.
func (m models) Find(name string) (v1.Model, bool) {
	_, err := m.Model(name)
	return v1.Model{ID: name, Name: name}, err == nil
}

// check refuses an agent this server could not run.
func (m models) check(tools *tool.Set) func(dormouse.AgentConfig) error {
	return func(a dormouse.AgentConfig) error {
		if _, err := m.Model(a.Model); err != nil {
			return err
		}
		for _, t := range a.Tools {
			if !tools.Has(t.Name) {
				return fmt.Errorf("there is no tool %q; there is %s: %w", t.Name, strings.Join(tools.Names(), ", "), dormouse.ErrInvalid)
			}
		}
		for _, t := range a.CustomTools {
			if tools.Has(t.Name) {
				return fmt.Errorf("custom tool %q has the name of a built-in one: %w", t.Name, dormouse.ErrInvalid)
			}
		}
		return nil
	}
}
