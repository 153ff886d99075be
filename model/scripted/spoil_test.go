package scripted_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dormouse-run/dormouse/model"
	"github.com/dormouse-run/dormouse/model/scripted"
)

func TestSpoiledStreamIsNoReply(t *testing.T) {
	for _, spoil := range []string{"truncated", "stalled", "malformed", "duplicate", "disordered", "endless", "unfinished", "uncounted"} {
		for name, step := range map[string]string{"text": `"text":"a few words"`, "tool call": `"tool":"bash","input":{"command":"true"}`} {
			t.Run(spoil+" "+name, func(t *testing.T) {
				server, url := serve(t, scripted.Options{})
				c := scripted.NewClient(scripted.ClientConfig{BaseURL: url, IdleTimeout: 200 * time.Millisecond})
				r := model.Request{Model: "scripted", Messages: []model.Message{{Role: model.RoleUser, Content: []model.Part{
					{Type: model.PartText, Text: `SCRIPT[{` + step + `,"spoil":"` + spoil + `"}]`},
				}}}}
				none := func(model.Delta) error { return nil }
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				_, err := c.Reply(ctx, r, none)
				if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.RequestFailed || ctx.Err() != nil {
					t.Errorf("the first time: %v, want a failed request", err)
				}
				if reply, err := c.Reply(ctx, r, none); err != nil || len(reply.Content) != 1 {
					t.Errorf("the second time: %v, %v", reply, err)
				}
				if calls := server.Calls(); calls.Effects != 2 || calls.Replies < 1 {
					t.Errorf("counted were %+v", calls.Count)
				}
			})
		}
	}
}

func TestSpoilOfNoKnownKindIsRefused(t *testing.T) {
	m := scripted.New(scripted.Options{})
	_, err := m.Reply(t.Context(), model.Request{Model: "scripted", Messages: []model.Message{{Role: model.RoleUser, Content: []model.Part{
		{Type: model.PartText, Text: `SCRIPT[{"text":"hm","spoil":"rotten"}]`},
	}}}}, func(model.Delta) error { return nil })
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.Rejected {
		t.Errorf("got %v, want a rejected request", err)
	}
}
