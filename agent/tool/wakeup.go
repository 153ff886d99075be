package tool

import (
	_ "embed"
	"encoding/json"
	"errors"
	"time"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/model"
)

//go:embed wakeup_schedule.md
var wakeupScheduleText string

//go:embed wakeup_cancel.md
var wakeupCancelText string

//go:embed wakeup_list.md
var wakeupListText string

// maxWakeup is how far ahead a wake-up may be.
const maxWakeup = 366 * 24 * time.Hour

type wakeupSchedule struct{}

func (wakeupSchedule) Spec() model.Tool {
	return model.Tool{Name: "wakeup_schedule", Description: wakeupScheduleText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"prompt":{"type":"string","description":"What you will be asked then."},` +
		`"in_seconds":{"type":"integer","minimum":1,"description":"Fire once, after this long."},` +
		`"cron":{"type":"string","description":"Fire again and again: a cron line of five fields, in UTC."}},` +
		`"required":["prompt"],"additionalProperties":false}`)}
}

func (wakeupSchedule) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		Prompt string `json:"prompt"`
		After  int64  `json:"in_seconds"`
		Cron   string `json:"cron"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	if (in.After == 0) == (in.Cron == "") {
		return nil, errors.New("give either in_seconds or cron")
	}
	after, err := seconds("in_seconds", in.After, 0, maxWakeup)
	if err != nil {
		return nil, err
	}
	content, err := words("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	return Schedule{After: after, Cron: in.Cron, Content: content}, nil
}

type wakeupCancel struct{}

func (wakeupCancel) Spec() model.Tool {
	return model.Tool{Name: "wakeup_cancel", Description: wakeupCancelText, InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"id":{"type":"string","description":"The wake-up's id."}},"required":["id"],"additionalProperties":false}`)}
}

func (wakeupCancel) Wish(input json.RawMessage) (Wish, error) {
	var in struct {
		ID dormouse.WakeupID `json:"id"`
	}
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	if in.ID.Validate() != nil {
		return nil, errors.New("id must be one that wakeup_schedule returned")
	}
	return Unschedule{ID: in.ID}, nil
}

type wakeupList struct{}

func (wakeupList) Spec() model.Tool {
	return model.Tool{
		Name: "wakeup_list", Description: wakeupListText,
		InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
	}
}

func (wakeupList) Wish(input json.RawMessage) (Wish, error) {
	return Wakeups{}, decode(input, &struct{}{})
}
