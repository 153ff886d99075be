package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/offline"
	"github.com/dormouse-run/dormouse/model/scripted"
)

// models are those a server was given, by name, and what they cost.
type models struct {
	named  map[string]model.Model
	prices map[string]model.Price
}

func newModels(c config) models {
	m := models{named: map[string]model.Model{"offline": offline.New()}}
	m.prices, _ = parsePrices(c.Prices) // checked with the rest of the configuration
	if c.ScriptedURL != "" {
		wire := scripted.ClientConfig{BaseURL: c.ScriptedURL, HeaderTimeout: c.ModelTimeout, IdleTimeout: c.ModelTimeout}
		m.named["scripted"] = scripted.NewClient(wire)
		wire.Keyed = true
		m.named["scripted-keyed"] = scripted.NewClient(wire)
	}
	return m
}

// Price implements agent.Priced. What has no price costs nothing.
func (m models) Price(name string) model.Price { return m.prices[name] }

// Model finds a model by its name.
func (m models) Model(name string) (model.Model, error) {
	if found, ok := m.named[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("there is no model %q here; there is %s: %w", name, strings.Join(slices.Sorted(maps.Keys(m.named)), ", "), dormouse.ErrInvalid)
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

func newModelsTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "models",
		Short: "How to choose a model",
		Long: `A session talks to one model, chosen when it is made:

  dormouse session create --model NAME

A session that names none gets the server's, which is set with

  dormouse serve --model NAME

(or DORMOUSE_MODEL, or "model" in config.json in the data directory).

These can be named:

  offline         Needs no key and no network. Lines of a prompt that begin with $
                  are run in the sandbox; anything else is answered with advice.
                  This is what a server has when it was told nothing.
  scripted        Says what a script in the prompt tells it to say: for tests.
                  Needs "dormouse serve --scripted-url URL".
  scripted-keyed  The same, asked with idempotency keys.

A model that the server does not have is refused when the session is made.`,
	}
}
