package dormouse

import "time"

// PromptStatus is where a prompt stands.
type PromptStatus string

// The statuses of a prompt.
const (
	PromptIsQueued     PromptStatus = "queued"
	PromptIsProcessing PromptStatus = "processing"
	PromptIsCompleted  PromptStatus = "completed"
	PromptIsCancelled  PromptStatus = "cancelled"
)

// PromptRecord is the queue's row for a prompt. Its body is in the log, at Seq.
type PromptRecord struct {
	ID     EventID      `json:"id"`
	Thread ThreadID     `json:"thread"`
	Status PromptStatus `json:"status"`
	// Body is the digest of what was asked: the same id with another body is refused.
	Body   Digest    `json:"body"`
	Turn   TurnID    `json:"turn,omitempty"`
	Seq    uint64    `json:"seq"`
	Queued time.Time `json:"queued_at"`
}

// PromptID is the id of the prompt that a client calls clientID: the same name
// twice is the same prompt.
func PromptID(session SessionID, clientID string) EventID {
	return EventID(DeriveID(EventPrefix, string(session), "client", clientID))
}
