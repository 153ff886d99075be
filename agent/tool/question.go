package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
	"strings"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

//go:embed question.md
var questionText string

// Limits of a question.
const (
	maxQuestion = 16 << 10
	maxOptions  = 20
)

type questionAsk struct{}

type questionInput struct {
	Question string   `json:"question" jsonschema:"What to ask."`
	Options  []string `json:"options,omitempty" jsonschema:"Answers to choose from, if there are some."`
	Expires  int64    `json:"expires_in_seconds,omitempty" jsonschema:"How long to wait for an answer; 300 if not given."`
}

var questionSchema = schemaFor[questionInput](maxItems("options", maxOptions), minimum("expires_in_seconds", 0))

func (questionAsk) Spec() model.Tool {
	return model.Tool{Name: "question_ask", Description: questionText, InputSchema: questionSchema}
}

func (questionAsk) Action(input json.RawMessage) (Action, error) {
	var in questionInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	switch {
	case strings.TrimSpace(in.Question) == "":
		return nil, errors.New("question is empty")
	case len(input) > maxQuestion || len(in.Options) > maxOptions:
		return nil, errors.New("the question is too long, or has too many options")
	}
	within, err := seconds("expires_in_seconds", in.Expires, dormouse.QuestionWithin, dormouse.MaxQuestionWithin)
	if err != nil {
		return nil, err
	}
	return Question{Within: within}, nil
}
