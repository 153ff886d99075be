package model_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse/model"
)

func text(s string) model.Part { return model.Part{Type: model.PartText, Text: s} }

func use(id string) model.Part {
	return model.Part{Type: model.PartToolUse, ID: id, Name: "bash", Input: json.RawMessage(`{"command":"ls"}`)}
}

func result(id string) model.Part {
	return model.Part{Type: model.PartToolResult, Use: id, Result: []model.Part{text("a b")}}
}

func user(p ...model.Part) model.Message { return model.Message{Role: model.RoleUser, Content: p} }

func assistant(p ...model.Part) model.Message {
	return model.Message{Role: model.RoleAssistant, Content: p}
}

func TestTranscriptsThatAProviderTakes(t *testing.T) {
	for name, messages := range map[string][]model.Message{
		"one prompt":               {user(text("hi"))},
		"an image":                 {user(text("see"), model.Part{Type: "image", Source: json.RawMessage(`{"type":"base64"}`)})},
		"a tool use":               {user(text("hi")), assistant(use("u1")), user(result("u1"))},
		"two tool uses":            {user(text("hi")), assistant(text("so"), use("u1"), use("u2")), user(result("u2"), result("u1"))},
		"results, then text":       {user(text("hi")), assistant(use("u1")), user(result("u1"), text("[dormouse: restarted]"))},
		"a result without content": {user(text("hi")), assistant(use("u1")), user(model.Part{Type: model.PartToolResult, Use: "u1"})},
		"two turns":                {user(text("hi")), assistant(text("yes")), user(text("again"))},
	} {
		t.Run(name, func(t *testing.T) {
			if err := model.ValidateTranscript(messages); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTranscriptsThatAProviderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		messages []model.Message
		says     string
	}{
		"no messages":                      {nil, "empty"},
		"the assistant first":              {[]model.Message{assistant(text("hi")), user(text("yes"))}, "messages[0].role"},
		"two user messages in a row":       {[]model.Message{user(text("hi")), user(text("yes"))}, "messages[1].role"},
		"the assistant last":               {[]model.Message{user(text("hi")), assistant(text("yes"))}, "last message"},
		"no content":                       {[]model.Message{user()}, "content is empty"},
		"empty text":                       {[]model.Message{user(text(""))}, "text is empty"},
		"blank text":                       {[]model.Message{user(text(" \n"))}, "text is empty"},
		"text that is not UTF-8":           {[]model.Message{user(text("\xff"))}, "UTF-8"},
		"an unknown block":                 {[]model.Message{user(model.Part{Type: "video"})}, `"video"`},
		"an image without source":          {[]model.Message{user(model.Part{Type: "image"})}, "source"},
		"an image from the assistant":      {[]model.Message{user(text("a")), assistant(model.Part{Type: "image", Source: json.RawMessage(`{}`)}), user(text("b"))}, "belongs"},
		"a tool use without result":        {[]model.Message{user(text("a")), assistant(use("u1")), user(text("b"))}, `"u1" has no result`},
		"a result too late":                {[]model.Message{user(text("a")), assistant(use("u1")), user(text("b")), assistant(text("c")), user(result("u1"))}, "no result in the next"},
		"a result without tool use":        {[]model.Message{user(text("a")), assistant(text("b")), user(result("u1"))}, "no tool use"},
		"two results for one tool use":     {[]model.Message{user(text("a")), assistant(use("u1")), user(result("u1"), result("u1"))}, "no tool use"},
		"text before the results":          {[]model.Message{user(text("a")), assistant(use("u1")), user(text("b"), result("u1"))}, "come first"},
		"the same tool use twice at once":  {[]model.Message{user(text("a")), assistant(use("u1"), use("u1")), user(result("u1"))}, "appears twice"},
		"the same tool use twice in all":   {[]model.Message{user(text("a")), assistant(use("u1")), user(result("u1")), assistant(use("u1")), user(result("u1"))}, "appears twice"},
		"a tool use from the user":         {[]model.Message{user(use("u1"))}, "belongs"},
		"a tool result from the assistant": {[]model.Message{user(text("a")), assistant(use("u1")), user(result("u1")), assistant(result("u1")), user(text("b"))}, "no tool use"},
		"an empty text in a result":        {[]model.Message{user(text("a")), assistant(use("u1")), user(model.Part{Type: model.PartToolResult, Use: "u1", Result: []model.Part{text("")}})}, "text is empty"},
		"a tool use in a result":           {[]model.Message{user(text("a")), assistant(use("u1")), user(model.Part{Type: model.PartToolResult, Use: "u1", Result: []model.Part{use("u2")}})}, "inside a tool result"},
		"input that is not an object":      {[]model.Message{user(text("a")), assistant(model.Part{Type: model.PartToolUse, ID: "u1", Name: "bash", Input: json.RawMessage(`[1]`)}), user(result("u1"))}, "not an object"},
		"no input":                         {[]model.Message{user(text("a")), assistant(model.Part{Type: model.PartToolUse, ID: "u1", Name: "bash"}), user(result("u1"))}, "not an object"},
		"a tool use without id":            {[]model.Message{user(text("a")), assistant(use("")), user(result(""))}, "must be letters"},
		"a tool use named with a space":    {[]model.Message{user(text("a")), assistant(use("u 1")), user(result("u 1"))}, "must be letters"},
	} {
		t.Run(name, func(t *testing.T) {
			err := model.ValidateTranscript(c.messages)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
		})
	}
}

func TestLastPromptIsNeverANotice(t *testing.T) {
	for name, c := range map[string]struct {
		messages []model.Message
		prompt   string
		since    int
	}{
		"one prompt":             {[]model.Message{user(text("a"))}, "a", 0},
		"two texts":              {[]model.Message{user(text("a"), text("b"))}, "b", 0},
		"after a tool use":       {[]model.Message{user(text("a")), assistant(use("u1")), user(result("u1"))}, "a", 2},
		"a notice after results": {[]model.Message{user(text("a")), assistant(use("u1")), user(result("u1"), text("[dormouse: x]"))}, "a", 2},
		"a notice of its own":    {[]model.Message{user(text("a")), assistant(text("par")), user(text("[dormouse: interrupted]"))}, "a", 2},
		"a prompt with results":  {[]model.Message{user(text("a")), assistant(use("u1")), user(result("u1"), text("b"))}, "b", 0},
		"no prompt":              {[]model.Message{user(text("[dormouse: x]"))}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			prompt, since := model.LastPrompt(c.messages)
			if prompt != c.prompt || len(since) != c.since {
				t.Errorf("got %q and %d messages since, want %q and %d", prompt, len(since), c.prompt, c.since)
			}
		})
	}
}
