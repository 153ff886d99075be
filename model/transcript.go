package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dormouse-run/dormouse"
)

// NoticePrefix begins every user-role text that the runtime wrote itself. A
// notice is not a prompt.
const NoticePrefix = "[dormouse"

// LastPrompt returns the last text a person or program wrote, and the messages
// after the one that holds it. Notices are not counted.
func LastPrompt(messages []Message) (prompt string, since []Message) {
	for i, m := range slices.Backward(messages) {
		if m.Role != RoleUser {
			continue
		}
		for _, p := range slices.Backward(m.Content) {
			if p.Type == PartText && !strings.HasPrefix(strings.TrimSpace(p.Text), NoticePrefix) {
				return p.Text, messages[i+1:]
			}
		}
	}
	return "", messages
}

// ValidateTranscript refuses what a provider would refuse: messages that do not
// alternate from user to user, tool uses and results that do not pair up in
// neighbouring messages, names used twice, and blocks without content. An
// invalid transcript is refused again on every later call, so a session that
// sends one never recovers by itself.
func ValidateTranscript(messages []Message) error {
	if len(messages) == 0 {
		return fmt.Errorf("messages are empty: %w", dormouse.ErrInvalid)
	}
	seen := make(map[string]bool)
	var open []string // tool uses the next message must answer
	for i, m := range messages {
		want := RoleUser
		if i%2 == 1 {
			want = RoleAssistant
		}
		if m.Role != want {
			return fmt.Errorf("messages[%d].role is %q; roles alternate and this one must be %s: %w", i, m.Role, want, dormouse.ErrInvalid)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("messages[%d].content is empty: %w", i, dormouse.ErrInvalid)
		}
		if err := validateResults(m, open); err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		open = nil
		for j, p := range m.Content {
			if err := validatePart(m.Role, p); err != nil {
				return fmt.Errorf("messages[%d].content[%d]: %w", i, j, err)
			}
			if p.Type != PartToolUse {
				continue
			}
			if seen[p.ID] {
				return fmt.Errorf("messages[%d].content[%d]: tool use %q appears twice: %w", i, j, p.ID, dormouse.ErrInvalid)
			}
			seen[p.ID] = true
			open = append(open, p.ID)
		}
	}
	if last := messages[len(messages)-1]; last.Role != RoleUser {
		return fmt.Errorf("the last message is the assistant's; it must be the user's: %w", dormouse.ErrInvalid)
	}
	return nil
}

// validateResults checks that m answers exactly the tool uses of the message
// before it, each once, ahead of everything else.
func validateResults(m Message, open []string) error {
	waiting := make(map[string]bool, len(open))
	for _, id := range open {
		waiting[id] = true
	}
	other := false
	for j, p := range m.Content {
		if p.Type != PartToolResult {
			other = true
			continue
		}
		if other {
			return fmt.Errorf("content[%d]: tool results come first in a message: %w", j, dormouse.ErrInvalid)
		}
		if !waiting[p.Use] {
			return fmt.Errorf("content[%d]: tool result for %q has no tool use in the previous message: %w", j, p.Use, dormouse.ErrInvalid)
		}
		delete(waiting, p.Use)
	}
	for _, id := range open {
		if waiting[id] {
			return fmt.Errorf("tool use %q has no result in the next message: %w", id, dormouse.ErrInvalid)
		}
	}
	return nil
}

func validatePart(role string, p Part) error {
	switch p.Type {
	case PartText:
		if strings.TrimSpace(p.Text) == "" {
			return fmt.Errorf("text is empty: %w", dormouse.ErrInvalid)
		}
		return dormouse.ValidateText(p.Text)
	case "image", "document":
		if role != RoleUser {
			return fmt.Errorf("%s belongs to the user: %w", p.Type, dormouse.ErrInvalid)
		}
		if !isObject(p.Source) {
			return fmt.Errorf("%s has no source: %w", p.Type, dormouse.ErrInvalid)
		}
	case PartToolUse:
		if role != RoleAssistant {
			return fmt.Errorf("tool use belongs to the assistant: %w", dormouse.ErrInvalid)
		}
		if !isName(p.ID) || !isName(p.Name) {
			return fmt.Errorf("tool use has id %q and name %q; both must be letters, digits, _ or -: %w", p.ID, p.Name, dormouse.ErrInvalid)
		}
		if !isObject(p.Input) {
			return fmt.Errorf("input of tool use %q is not an object: %w", p.ID, dormouse.ErrInvalid)
		}
	case PartToolResult:
		if role != RoleUser {
			return fmt.Errorf("tool result belongs to the user: %w", dormouse.ErrInvalid)
		}
		for i, r := range p.Result {
			if r.Type == PartToolUse || r.Type == PartToolResult {
				return fmt.Errorf("result[%d]: %s inside a tool result: %w", i, r.Type, dormouse.ErrInvalid)
			}
			if err := validatePart(RoleUser, r); err != nil {
				return fmt.Errorf("result[%d]: %w", i, err)
			}
		}
	default:
		return fmt.Errorf("type is %q: %w", p.Type, dormouse.ErrInvalid)
	}
	return nil
}

func isName(s string) bool {
	return s != "" && len(s) <= 128 &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

func isObject(raw json.RawMessage) bool {
	return json.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}
