package main

import (
	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/model/anthropic"
)

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

  claude-…        Anthropic's, by the names that its API knows, such as
                  ` + anthropic.Default + `. Needs a key: ANTHROPIC_API_KEY in the server's
                  environment, or "dormouse serve --anthropic-key-file FILE". This is
                  what a server has that was told a key and nothing else.
  offline         Needs no key and no network. Lines of a prompt that begin with $
                  are run in the sandbox; anything else is answered with advice.
                  This is what a server has when it was told nothing.
  scripted        Says what a script in the prompt tells it to say: for tests.
                  Needs "dormouse serve --scripted-url URL".
  scripted-keyed  The same, asked with idempotency keys.

A model that the server does not have is refused when the session is made.`,
	}
}
