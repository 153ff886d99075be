package dormouse

import "time"

// How long a question may be answered.
const (
	QuestionWithin    = 5 * time.Minute
	MaxQuestionWithin = 7 * 24 * time.Hour
)

// Question is the payload of question.asked, question.answered and
// question.expired. What is asked is the input of its tool call.
type Question struct {
	Use     EventID   `json:"tool_use_id"`
	Expires time.Time `json:"expires_at,omitzero"`
	Content []Block   `json:"content,omitempty"`
}
