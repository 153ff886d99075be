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

type wakeupScheduleInput struct {
	Prompt string `json:"prompt" jsonschema:"What you will be asked then."`
	After  int64  `json:"in_seconds,omitempty" jsonschema:"Fire once, after this long."`
	Cron   string `json:"cron,omitempty" jsonschema:"Fire again and again: a cron line of five fields, in UTC."`
}

var wakeupScheduleSchema = schemaFor[wakeupScheduleInput](minimum("in_seconds", 1))

func (wakeupSchedule) Spec() model.Tool {
	return model.Tool{Name: "wakeup_schedule", Description: wakeupScheduleText, InputSchema: wakeupScheduleSchema}
}

func (wakeupSchedule) Action(input json.RawMessage) (Action, error) {
	var in wakeupScheduleInput
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
	content, err := promptContent("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	return Schedule{After: after, Cron: in.Cron, Content: content}, nil
}

type wakeupCancel struct{}

type wakeupCancelInput struct {
	ID dormouse.WakeupID `json:"id" jsonschema:"The wake-up's id."`
}

var wakeupCancelSchema = schemaFor[wakeupCancelInput]()

func (wakeupCancel) Spec() model.Tool {
	return model.Tool{Name: "wakeup_cancel", Description: wakeupCancelText, InputSchema: wakeupCancelSchema}
}

func (wakeupCancel) Action(input json.RawMessage) (Action, error) {
	var in wakeupCancelInput
	if err := decode(input, &in); err != nil {
		return nil, err
	}
	if in.ID.Validate() != nil {
		return nil, errors.New("id must be one that wakeup_schedule returned")
	}
	return Unschedule(in), nil
}

type wakeupList struct{}

func (wakeupList) Spec() model.Tool {
	return model.Tool{Name: "wakeup_list", Description: wakeupListText, InputSchema: noInputSchema}
}

func (wakeupList) Action(input json.RawMessage) (Action, error) {
	return Wakeups{}, decode(input, &noInput{})
}
