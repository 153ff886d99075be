package rest_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/session"
	"github.com/dormouse-run/dormouse/store"
	"github.com/dormouse-run/dormouse/store/memory"
)

// crowd is a store whose first readers of a prompt wait for each other.
type crowd struct {
	store.Store
	awaited atomic.Int64
	all     chan struct{}
}

func (c *crowd) Prompt(ctx context.Context, id dormouse.SessionID, prompt dormouse.EventID) (dormouse.PromptRecord, error) {
	found, err := c.Store.Prompt(ctx, id, prompt)
	if c.awaited.Add(-1) == 0 {
		close(c.all)
	}
	<-c.all
	return found, err
}

func TestOneOfThoseWhoSendTheSamePromptAtOnceIsToldThatItIsNew(t *testing.T) {
	const senders = 5
	there := &crowd{Store: new(memory.Store), all: make(chan struct{})}
	there.awaited.Store(senders) // each of them looks before any of them is through
	h := newServerOf(t, new(boxes), func(c *session.Config) { c.Store = there })
	path := h.create(`{}`)
	statuses := make(chan int, senders)
	for range senders {
		go func() {
			status, _ := h.do(h.request(http.MethodPost, path+"/prompts", strings.NewReader(`{"content":"hello","id":"one"}`)))
			statuses <- status
		}()
	}
	told := make(map[int]int)
	for range senders {
		told[<-statuses]++
	}
	if diff := cmp.Diff(map[int]int{http.StatusAccepted: 1, http.StatusOK: senders - 1}, told); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}
