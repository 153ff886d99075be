package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/contract"
)

// nothing is the payload of an event that says all by its type.
type nothing struct{}

// payloads are the types of events and what is in each.
var payloads = map[dormouse.EventType]any{
	dormouse.UserMessage:          dormouse.Message{},
	dormouse.UserInterrupt:        nothing{},
	dormouse.UserToolConfirmation: dormouse.ToolConfirmation{},
	dormouse.UserCustomToolResult: dormouse.CustomToolResult{},
	dormouse.SystemMessage:        dormouse.Message{},

	dormouse.AgentMessage:       dormouse.Message{},
	dormouse.AgentThinking:      nothing{},
	dormouse.AgentToolUse:       dormouse.ToolUse{},
	dormouse.AgentToolResult:    dormouse.ToolResult{},
	dormouse.AgentCustomToolUse: dormouse.ToolUse{},

	dormouse.SpanModelRequestStart: nothing{},
	dormouse.SpanModelRequestEnd:   dormouse.SpanEnd{},

	dormouse.SessionStatusRunning:           nothing{},
	dormouse.SessionStatusIdle:              dormouse.Idle{},
	dormouse.SessionStatusRescheduled:       nothing{},
	dormouse.SessionStatusTerminated:        nothing{},
	dormouse.SessionThreadStatusRunning:     dormouse.ThreadStatus{},
	dormouse.SessionThreadStatusIdle:        dormouse.ThreadStatus{},
	dormouse.SessionThreadStatusRescheduled: dormouse.ThreadStatus{},
	dormouse.SessionThreadStatusTerminated:  dormouse.ThreadStatus{},
	dormouse.SessionThreadCreated:           dormouse.ThreadCreated{},

	dormouse.SessionError:   dormouse.Failure{},
	dormouse.SessionUsage:   dormouse.Usage{},
	dormouse.SessionUpdated: dormouse.Update{},
	dormouse.SessionDeleted: nothing{},

	dormouse.SessionCreated:    dormouse.Created{},
	dormouse.SessionTagged:     dormouse.Tagging{},
	dormouse.SessionArchived:   nothing{},
	dormouse.SessionTerminated: dormouse.Termination{},
	dormouse.AgentConfigured:   dormouse.AgentChange{},
	dormouse.ThreadArchived:    nothing{},
	dormouse.RequestTaken:      dormouse.Taken{},

	dormouse.PromptQueued:    dormouse.PromptBody{},
	dormouse.PromptCompleted: dormouse.Prompts{},
	dormouse.PromptCancelled: dormouse.Prompts{},
	dormouse.TurnStarted:     dormouse.TurnFact{},
	dormouse.TurnBlocked:     dormouse.Blocked{},
	dormouse.TurnResumed:     dormouse.TurnFact{},
	dormouse.TurnEnded:       dormouse.TurnFact{},
	dormouse.AttemptStarted:  dormouse.Attempt{},
	dormouse.AttemptEnded:    dormouse.Attempt{},

	dormouse.OpStarted:        dormouse.OpFact{},
	dormouse.OpFinished:       dormouse.OpEnd{},
	dormouse.OpUnknown:        dormouse.OpEnd{},
	dormouse.QuestionAsked:    dormouse.Question{},
	dormouse.QuestionAnswered: dormouse.Question{},
	dormouse.QuestionExpired:  dormouse.Question{},

	dormouse.WakeupScheduled: dormouse.Wakeup{},
	dormouse.WakeupFired:     dormouse.WakeupFact{},
	dormouse.WakeupCancelled: dormouse.WakeupFact{},

	dormouse.ChildSpawned: dormouse.Spawned{},
	dormouse.ChildStarted: dormouse.ChildFact{},
	dormouse.ChildEnding:  dormouse.ChildFact{},
	dormouse.ChildEnded:   dormouse.ChildFact{},
	dormouse.ParentTold:   dormouse.ChildFact{},

	dormouse.ExecAsked:    dormouse.ExecAsk{},
	dormouse.ExecEnding:   dormouse.ExecAnswer{},
	dormouse.ExecRefused:  dormouse.ExecAnswer{},
	dormouse.ExecAnswered: dormouse.ExecAnswer{},

	dormouse.SandboxWarming:  dormouse.SandboxFact{},
	dormouse.SandboxStarted:  dormouse.SandboxFact{},
	dormouse.SandboxStopping: dormouse.SandboxFact{},
	dormouse.SandboxStopped:  dormouse.SandboxFact{},
	dormouse.SandboxLost:     dormouse.SandboxFact{},
	dormouse.SandboxStirred:  dormouse.SandboxFact{},
	dormouse.SandboxRelieved: dormouse.SandboxFact{},

	dormouse.SnapshotAskedFor: dormouse.SnapshotAsk{},
	dormouse.SnapshotTaken:    dormouse.Snapshot{},
	dormouse.SnapshotSkipped:  dormouse.SnapshotSkip{},
	dormouse.SnapshotDeleted:  dormouse.SnapshotsGone{},

	dormouse.WorkspaceSwapped:   dormouse.WorkspaceSwap{},
	dormouse.WorkspaceRecovered: dormouse.WorkspaceRecovery{},
	dormouse.WorkspaceTouched:   dormouse.WorkspaceTouch{},
	dormouse.HistoryTruncated:   dormouse.Truncation{},

	dormouse.AttentionRaised:  dormouse.Attention{},
	dormouse.AttentionCleared: nothing{},
	dormouse.EventDamaged:     nothing{},
}

// eventLines are the types of events, the readers that are shown them, and the fields
// of each.
func eventLines(t *testing.T) []string {
	t.Helper()
	var lines []string
	audiences := []string{"everyone", "people", "core"}
	for kind, payload := range payloads {
		if kind.Version() > dormouse.LogVersion {
			t.Errorf("%s is no event that this program knows", kind)
		}
		lines = append(lines, string(kind)+" for "+audiences[slices.Index([]dormouse.Audience{dormouse.ForEveryone, dormouse.ForPeople, dormouse.ForCore}, kind.Audience())])
		for _, field := range contract.Fields(reflect.TypeOf(payload)) {
			lines = append(lines, string(kind)+" "+field)
		}
	}
	for _, field := range contract.Fields(reflect.TypeFor[dormouse.Event]()) {
		lines = append(lines, "any event "+field)
	}
	return lines
}

// The events that a version before wrote have no field that payloads does not know, and
// none changes when it is decoded and encoded again.
func TestEventsOfAVersionBeforeAreWhatPayloadsSays(t *testing.T) {
	f, err := os.Open(filepath.Join("..", "..", "e2e", "testdata", "upgrade", "6333ee6", "sqlite", "before.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var sessions map[string]struct {
		Events struct {
			Events []dormouse.Event `json:"events"`
		} `json:"events"`
	}
	if err := json.NewDecoder(z).Decode(&sessions); err != nil {
		t.Fatal(err)
	}
	types := make(map[dormouse.EventType]bool)
	for _, s := range sessions {
		for _, e := range s.Events.Events {
			types[e.Type] = true
			if e.Payload != nil {
				decodes(t, e)
			}
		}
	}
	const known = 50
	if len(types) < known {
		t.Errorf("only %d types of events were looked at", len(types))
	}
}

// decodes checks that a payload is of the type that payloads says.
func decodes(t *testing.T, e dormouse.Event) {
	t.Helper()
	payload, ok := payloads[e.Type]
	if !ok {
		t.Errorf("there is no event %s any more", e.Type)
		return
	}
	into := reflect.New(reflect.TypeOf(payload))
	d := json.NewDecoder(bytes.NewReader(e.Payload))
	d.DisallowUnknownFields()
	if err := d.Decode(into.Interface()); err != nil {
		t.Errorf("%s %s: %v", e.Type, e.Payload, err)
		return
	}
	var was bytes.Buffer
	if err := json.Compact(&was, e.Payload); err != nil {
		t.Fatal(err)
	}
	is, err := json.Marshal(into.Interface()) // which writes < as the file does
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(is, was.Bytes()) {
		t.Errorf("%s was %s and is encoded as %s", e.Type, was.Bytes(), is)
	}
}
