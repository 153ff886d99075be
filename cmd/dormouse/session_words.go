package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse"
)

// fact has the fields of events that are not part of the conversation. Each type of event
// fills some of them.
type fact struct {
	Reason  string                 `json:"reason"`
	Missing string                 `json:"missing"`
	Result  string                 `json:"result"`
	Error   dormouse.FailureDetail `json:"error"`
	Kind    dormouse.OpKind        `json:"kind"`
	Outcome string                 `json:"outcome"`
	Use     dormouse.EventID       `json:"tool_use_id"`
	Expires time.Time              `json:"expires_at"`
	ID      string                 `json:"id"`
	At      time.Time              `json:"at"`
	Next    time.Time              `json:"next"`
	Cron    string                 `json:"cron"`
	Content []dormouse.Block       `json:"content"`
	Child   json.RawMessage        `json:"child"` // an id, or what it is made of
	Thread  dormouse.ThreadID      `json:"session_thread_id"`
	Title   *string                `json:"title"`
	Tags    []string               `json:"tags"`
}

// inWords describes an event in a line for people; empty if it is not shown. A line that
// begins with ! is a warning, one with ? waits for an answer.
func inWords(e dormouse.Event) (string, error) {
	switch e.Type { //nolint:exhaustive // these are told elsewhere
	case dormouse.SnapshotAskedFor, dormouse.SnapshotTaken, dormouse.SnapshotSkipped, dormouse.SnapshotDeleted,
		dormouse.WorkspaceSwapped, dormouse.WorkspaceRecovered, dormouse.HistoryTruncated:
		return workspaceInWords(e)
	}
	var f fact
	if len(e.Payload) > 0 {
		if err := json.Unmarshal(e.Payload, &f); err != nil {
			return "", fmt.Errorf("understand event %d: %w", e.Seq, err)
		}
	}
	switch e.Type { //nolint:exhaustive // the others are the conversation, or bookkeeping
	case dormouse.UserInterrupt:
		return "— interrupted", nil
	case dormouse.UserToolConfirmation:
		return "— " + f.Result, nil
	case dormouse.SessionError:
		return "! " + f.Error.Message + " (" + f.Error.RetryStatus.Type + ")", nil
	case dormouse.SessionStatusRescheduled:
		return "— taken up again after a stop", nil
	case dormouse.SessionStatusTerminated:
		return "— terminated", nil
	case dormouse.SessionArchived:
		return "— archived", nil
	case dormouse.SessionDeleted:
		return "— deleted", nil
	case dormouse.SessionTagged:
		return "— tags: " + strings.Join(f.Tags, ", "), nil
	case dormouse.SessionUpdated:
		if f.Title != nil {
			return "— title: " + *f.Title, nil
		}
		return "— metadata changed", nil
	case dormouse.SessionThreadCreated:
		return "— thread " + string(f.Thread) + " opened", nil
	case dormouse.PromptCancelled:
		return "— cancelled from the queue: " + f.Reason, nil
	case dormouse.OpUnknown:
		return "! the outcome of a " + string(f.Kind) + " cannot be known: " + f.Outcome, nil
	case dormouse.SandboxLost:
		return "! sandbox lost: " + f.Reason, nil
	case dormouse.SandboxRelieved:
		return "! " + f.Reason, nil
	case dormouse.SandboxStarted, dormouse.SandboxStopped:
		if f.Missing != "" {
			return "! sandbox started without all its packages: " + f.Missing, nil
		}
		return "— " + strings.ReplaceAll(string(e.Type), ".", " "), nil
	case dormouse.QuestionAsked:
		return "? asks " + string(f.Use) + ", until " + at(f.Expires), nil
	case dormouse.QuestionAnswered:
		return "— answered by " + string(e.Actor), nil
	case dormouse.QuestionExpired:
		return "! nobody answered " + string(f.Use) + " in time", nil
	case dormouse.WakeupScheduled, dormouse.WakeupFired, dormouse.WakeupCancelled:
		return f.wakeup(e.Type), nil
	case dormouse.ChildSpawned, dormouse.ChildStarted, dormouse.ChildEnding, dormouse.ChildEnded:
		return f.child(e.Type), nil
	}
	return "", nil
}

func (f fact) wakeup(t dormouse.EventType) string {
	words := "— wake-up " + f.ID
	switch t { //nolint:exhaustive // only these come here
	case dormouse.WakeupScheduled:
		words += " is due at " + at(f.At)
		if f.Cron != "" {
			words += " and then by " + f.Cron
		}
		return words + ": " + oneLine(textOf(f.Content))
	case dormouse.WakeupCancelled:
		return words + " cancelled: " + f.Reason
	}
	words += " fired"
	if !f.Next.IsZero() {
		words += ", next at " + at(f.Next)
	}
	if f.Reason != "" {
		return "!" + strings.TrimPrefix(words, "—") + "; " + f.Reason
	}
	return words
}

func (f fact) child(t dormouse.EventType) string {
	var id string
	var made dormouse.Created
	if json.Unmarshal(f.Child, &id) != nil && json.Unmarshal(f.Child, &made) == nil {
		id = string(made.Session)
	}
	words := "— child " + id
	switch t { //nolint:exhaustive // only these come here
	case dormouse.ChildSpawned:
		words += " is being made"
		if made.Title != "" {
			words += ": " + oneLine(made.Title)
		}
	case dormouse.ChildStarted:
		words += " started"
	case dormouse.ChildEnding:
		words += " is being ended: " + f.Reason
	case dormouse.ChildEnded:
		words += " ended: " + f.Reason
	}
	return words
}
