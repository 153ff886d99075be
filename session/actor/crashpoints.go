package actor

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/crash"
)

// crashBefore are the instants before a batch is written, by what it records.
func crashBefore(events []dormouse.Event) {
	if !crash.Enabled {
		return
	}
	for _, e := range events {
		switch e.Type { //nolint:exhaustive // the others have no point of their own
		case dormouse.PromptQueued:
			crash.At(crash.PromptDeciding)
		case dormouse.TurnStarted:
			crash.At(crash.TurnStarting)
		case dormouse.UserInterrupt:
			crash.At(crash.InterruptDeciding)
		case dormouse.AttemptEnded:
			crash.At(crash.RecoverDeciding)
		case dormouse.AttentionRaised:
			crash.At(crash.RecoverFailing)
		case dormouse.ExecAsked:
			crash.At(crash.OpStarting)
		case dormouse.SandboxWarming:
			crash.At(crash.SandboxIntent)
		case dormouse.SnapshotDeleted:
			crash.At(crash.SnapshotForgetting)
		}
	}
}

// crashAfter are the instants after a batch is durable, before anything is published.
func crashAfter(events []dormouse.Event) {
	if !crash.Enabled {
		return
	}
	for _, e := range events {
		switch e.Type { //nolint:exhaustive // the others have no point of their own
		case dormouse.PromptQueued:
			crash.At(crash.PromptCommitted)
		case dormouse.TurnStarted:
			crash.At(crash.TurnWritten)
		case dormouse.TurnEnded:
			crash.At(crash.TurnEnded)
		case dormouse.UserInterrupt:
			crash.At(crash.InterruptCommitted)
		case dormouse.UserToolConfirmation, dormouse.UserCustomToolResult:
			crash.At(crash.OpAnswered)
		case dormouse.AttemptEnded:
			crash.At(crash.RecoverCommitted)
		case dormouse.ExecAsked:
			crash.At(crash.OpStarted)
		case dormouse.OpUnknown:
			crash.At(crash.RecoverUnknown)
		case dormouse.AttentionRaised:
			crash.At(crash.RecoverFailed)
		case dormouse.SandboxWarming:
			crash.At(crash.SandboxCreating)
		case dormouse.SandboxStarted:
			crash.At(crash.SandboxReady)
		case dormouse.WorkspaceSwapped:
			crash.At(crash.SwapCommitted)
		case dormouse.SnapshotDeleted:
			crash.At(crash.SnapshotForgotten)
		}
	}
}
