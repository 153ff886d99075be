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

// maxQuestion bounds what is asked.
const maxQuestion = 16 << 10

type questionAsk struct{}

func (questionAsk) Spec() model.Tool {
	return model.Tool{Name: "question_ask", Description: questionText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"question":{"type":"string","description":"What to ask."},` +
		`"options":{"type":"array","maxItems":20,"items":{"type":"string"},"description":"Answers to choose from, if there are some."},` +
		`"expires_in_seconds":{"type":"integer","minimum":0,"description":"How long to wait for an answer; 300 if not given."}},` +
		`"required":["question"],"additionalProperties":false}`)}
}

func (questionAsk) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
		Expires  int64    `json:"expires_in_seconds"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	const maxOptions = 20
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
